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

-- The rows of the snapshots of projections are removed like those of other dropped versions.
DELETE FROM backbone.projection_snapshots;
UPDATE backbone.projections SET role = 'dropping', revision = revision + 1, changed_at = now() WHERE role IN ('saving', 'saved');
ALTER TABLE backbone.projection_snapshots
    ADD COLUMN mac bytea CONSTRAINT projection_snapshots_mac CHECK (octet_length(mac) = 32 OR taken_at IS NULL AND mac IS NULL);
