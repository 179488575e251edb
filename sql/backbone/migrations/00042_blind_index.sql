-- +goose Up

-- By which keyed hashes of names, e-mail addresses and telephone numbers persons are found. It
-- decides nothing, and the nodes build it again when it is deleted. A row says that a term
-- stands in events of a person; an erasure deletes the rows under the key classes that it destroys.
CREATE TABLE backbone.blind_index (
    partition_id integer NOT NULL,
    kind         smallint NOT NULL,
    key_class    smallint NOT NULL,
    hash         bytea NOT NULL CHECK (octet_length(hash) = 8),
    subject_id   text COLLATE "C" NOT NULL,
    class        text COLLATE "C" NOT NULL,
    event_type   text COLLATE "C" NOT NULL,
    -- Of the values in the data of the events, as the type declares it: names of members inside a
    -- sealed value are personal text.
    path         text COLLATE "C" NOT NULL CHECK (octet_length(path) <= 1024),
    CONSTRAINT blind_index_pkey PRIMARY KEY (partition_id, kind, hash, subject_id, event_type, path, key_class)
);
CREATE INDEX blind_index_subject ON backbone.blind_index (partition_id, subject_id);

-- How far the index has read each log.
CREATE TABLE backbone.blind_index_positions (
    sequence     bigint NOT NULL,
    revision     bigint NOT NULL, -- of the last change, so that no node adds what it computed before
    partition_id integer NOT NULL,
    key          bytea NOT NULL CHECK (octet_length(key) = 8), -- tells the rules and the secret of the hashes
    CONSTRAINT blind_index_positions_pkey PRIMARY KEY (partition_id)
);

GRANT SELECT, INSERT, DELETE ON backbone.blind_index TO backbone_app;
GRANT SELECT, INSERT, UPDATE ON backbone.blind_index_positions TO backbone_app;
