-- +goose Up

-- Who works what. partition_id 0 is work of no single legal entity. Times are the
-- database's (statement_timestamp), so a node whose clock jumps changes nothing. The
-- term grows with every change of the holder: a transaction of a holder reads its row
-- after it has locked the checkpoint and gives up if the term is not its own.
CREATE TABLE backbone.leases (
    term         bigint NOT NULL CHECK (term > 0),
    taken_at     timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL, -- 1970-01-01: given back
    partition_id integer NOT NULL CHECK (partition_id >= 0),
    name         text COLLATE "C" NOT NULL,
    holder       text COLLATE "C" NOT NULL, -- '': given back
    CONSTRAINT leases_pkey PRIMARY KEY (name, partition_id)
) WITH (fillfactor = 50);

-- The nodes' signs of life.
CREATE TABLE backbone.nodes (
    seen_at timestamptz NOT NULL,
    node    text COLLATE "C" NOT NULL,
    CONSTRAINT nodes_pkey PRIMARY KEY (node)
) WITH (fillfactor = 50);

-- The projections of the installation with what operators decided about them. The
-- definition of a projection that was created at run time; NULL: built in.
CREATE TABLE backbone.projections (
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    revision   bigint NOT NULL CHECK (revision > 0),
    version    integer NOT NULL CHECK (version > 0),
    name       text COLLATE "C" NOT NULL,
    status     text NOT NULL CHECK (status IN ('created', 'running', 'paused', 'stopped', 'faulted')),
    changed_by text NOT NULL,
    settings   json NOT NULL,
    definition json,
    CONSTRAINT projections_pkey PRIMARY KEY (name, version)
);

-- Attempts that failed in a row at the event after the checkpoint, and what was done
-- so far. Until now "faulted" said that an attempt had failed; from here on it says
-- that the partition waits for an operator.
ALTER TABLE backbone.projection_checkpoints
    ADD COLUMN term            bigint NOT NULL DEFAULT 0, -- of the lease under which it moved last; 0: none
    ADD COLUMN processed       bigint NOT NULL DEFAULT 0, -- events that were handed to the handler
    ADD COLUMN skipped         bigint NOT NULL DEFAULT 0, -- events that were passed over after they had failed
    ADD COLUMN failed          bigint NOT NULL DEFAULT 0, -- attempts that were rolled back
    ADD COLUMN attempts        integer NOT NULL DEFAULT 0,
    ADD COLUMN first_failed_at timestamptz,
    ADD COLUMN last_failed_at  timestamptz,
    ADD COLUMN next_attempt_at timestamptz,
    ADD COLUMN last_event_at   timestamptz; -- recorded_at of the event at the checkpoint
UPDATE backbone.projection_checkpoints SET status = 'running', error = NULL WHERE status = 'faulted';
ALTER TABLE backbone.projection_checkpoints ADD CONSTRAINT projection_checkpoints_status CHECK (status IN ('running', 'retrying', 'faulted'));

-- Events that somebody who reads the log could not digest. It holds no value of the
-- event: what is wrong is a code and a place, and the event is in the log.
CREATE TABLE backbone.dead_letters (
    sequence        bigint NOT NULL CHECK (sequence > 0),
    first_failed_at timestamptz NOT NULL,
    last_failed_at  timestamptz NOT NULL,
    settled_at      timestamptz,
    partition_id    integer NOT NULL,
    version         integer NOT NULL, -- of the reader; 0: it has none
    attempts        integer NOT NULL,
    event_id        uuid NOT NULL,
    kind            text COLLATE "C" NOT NULL, -- of the reader, such as projection
    name            text COLLATE "C" NOT NULL, -- of the reader
    code            text NOT NULL,
    detail          text NOT NULL,
    status          text NOT NULL CHECK (status IN ('waiting', 'passed', 'skipped', 'resolved', 'discarded')),
    settled_by      text,
    reason          text,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (kind, name, version, partition_id, sequence)
);

-- The states of projections that were created at run time, by their key.
CREATE TABLE backbone.projection_rows (
    sequence     bigint NOT NULL, -- of the event that changed it last
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    projection   text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    state        json NOT NULL,
    CONSTRAINT projection_rows_pkey PRIMARY KEY (projection, version, partition_id, key)
);

GRANT SELECT, INSERT, UPDATE ON backbone.leases, backbone.projections, backbone.dead_letters TO backbone_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.nodes, backbone.projection_rows TO backbone_app;
GRANT DELETE ON backbone.dead_letters, backbone.projections TO backbone_app;
GRANT SELECT ON backbone.leases, backbone.nodes, backbone.projections, backbone.dead_letters TO backbone_reader;
