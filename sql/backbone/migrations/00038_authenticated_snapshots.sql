-- +goose Up

-- A snapshot carries an HMAC-SHA-256 of its columns under a secret of the tenant, which the
-- application's role cannot open, and the number of redactions of what it was folded from. The
-- stored snapshots have none; they are derived and are taken again.
DELETE FROM backbone.entity_snapshots;
DELETE FROM backbone.stream_snapshots;

ALTER TABLE backbone.entity_snapshots
    ADD COLUMN redactions bigint NOT NULL,
    ADD COLUMN mac bytea NOT NULL CONSTRAINT entity_snapshots_mac CHECK (octet_length(mac) = 32);
ALTER TABLE backbone.stream_snapshots
    ADD COLUMN redactions bigint NOT NULL,
    ADD COLUMN mac bytea NOT NULL CONSTRAINT stream_snapshots_mac CHECK (octet_length(mac) = 32);
