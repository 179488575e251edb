-- +goose Up

-- The event whose payload holds the digest of this revision of the row. -1: the row is from
-- before events held digests; 0: no event, which a verification reports.
ALTER TABLE backbone.intents ADD COLUMN last_sequence bigint NOT NULL DEFAULT -1;
ALTER TABLE backbone.intents ALTER COLUMN last_sequence SET DEFAULT 0;

-- A verification compares the rows with their events.
GRANT SELECT ON backbone.intents TO backbone_reader;
