-- +goose Up

-- What a service was enrolled for. Services from before have no responsible person, and are
-- refused until they are enrolled with one (auth.service_unbound).
ALTER TABLE backbone.principals
    ADD COLUMN responsible_person text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN modules            text[] NOT NULL DEFAULT '{}',
    ADD COLUMN contracted_types   text[] NOT NULL DEFAULT '{}',
    ADD COLUMN pii_classes        text[] NOT NULL DEFAULT '{}',
    ADD COLUMN trust_level        text NOT NULL DEFAULT '';
