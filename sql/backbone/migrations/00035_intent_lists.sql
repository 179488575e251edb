-- +goose Up

-- The streams that an intent writes, and the legal entity of its cause if that is another one.
-- The digest of the row covers both where they are set.
ALTER TABLE backbone.intents ADD COLUMN documents text[];
ALTER TABLE backbone.intents ADD COLUMN caused_by_partition integer;

-- Lists of intents by outcome. Those that were executed are most of the table, and are listed in
-- the order of the primary key.
CREATE INDEX intents_outcome ON backbone.intents (partition_id, status, id) WHERE status <> 'executed';
