-- +goose Up

-- Leases of nodes on work. partition_id 0 is work of no single legal entity. Times are
-- the database's (statement_timestamp), so that clocks of nodes do not matter. The
-- term grows with every change of the holder: a holder's transaction reads its row after
-- it has locked the checkpoint and rolls back if the term is another one.
CREATE TABLE backbone.leases (
    term         bigint NOT NULL CHECK (term > 0),
    taken_at     timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL, -- 1970-01-01: released
    partition_id integer NOT NULL CHECK (partition_id >= 0),
    name         text COLLATE "C" NOT NULL,
    holder       text COLLATE "C" NOT NULL, -- '': released
    CONSTRAINT leases_pkey PRIMARY KEY (name, partition_id)
) WITH (fillfactor = 50);

-- The nodes' heartbeats.
CREATE TABLE backbone.nodes (
    seen_at timestamptz NOT NULL,
    node    text COLLATE "C" NOT NULL,
    CONSTRAINT nodes_pkey PRIMARY KEY (node)
) WITH (fillfactor = 50);

-- The projections of the installation with the settings of operators. definition is that of
-- a projection created at run time; NULL: built in.
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

-- Failures in a row at the event after the checkpoint, and counts of processed and skipped
-- events and of failed attempts. Until now "faulted" meant that an attempt had failed; from
-- this migration on it means that the partition waits for an operator.
ALTER TABLE backbone.projection_checkpoints
    ADD COLUMN term            bigint NOT NULL DEFAULT 0, -- of the lease under which it moved last; 0: none
    ADD COLUMN processed       bigint NOT NULL DEFAULT 0, -- events that the handler received
    ADD COLUMN skipped         bigint NOT NULL DEFAULT 0, -- events that were skipped after they had failed
    ADD COLUMN failed          bigint NOT NULL DEFAULT 0, -- attempts that were rolled back
    ADD COLUMN attempts        integer NOT NULL DEFAULT 0,
    ADD COLUMN first_failed_at timestamptz,
    ADD COLUMN last_failed_at  timestamptz,
    ADD COLUMN next_attempt_at timestamptz,
    ADD COLUMN last_event_at   timestamptz; -- recorded_at of the event at the checkpoint
UPDATE backbone.projection_checkpoints SET status = 'running', error = NULL WHERE status = 'faulted';
ALTER TABLE backbone.projection_checkpoints ADD CONSTRAINT projection_checkpoints_status CHECK (status IN ('running', 'retrying', 'faulted'));

-- Events that a reader of the log could not process. A row holds no value of the event:
-- only the code of the failure, and the event's position in the log.
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

-- The rows of projections that were created at run time, by their key.
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
