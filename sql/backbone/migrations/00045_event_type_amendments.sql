-- +goose Up

-- A built-in version that a release gives optional members is stored again, as its next amendment
-- (ADR 0064). The first row of a version is number 0.
ALTER TABLE backbone.event_type_registry ADD COLUMN amendment integer NOT NULL DEFAULT 0 CHECK (amendment >= 0);
ALTER TABLE backbone.event_type_registry DROP CONSTRAINT event_type_registry_pkey;
ALTER TABLE backbone.event_type_registry ADD CONSTRAINT event_type_registry_pkey PRIMARY KEY (tenant_id, type, schema_version, amendment);
