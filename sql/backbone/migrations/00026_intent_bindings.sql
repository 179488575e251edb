-- +goose Up

-- The event whose payload holds the digest of this revision of the row. 0: none, as in rows
-- that were written before this migration.
ALTER TABLE backbone.intents ADD COLUMN last_sequence bigint NOT NULL DEFAULT 0;
