-- +goose Up

-- Heartbeats of nodes that share work which not every node of the installation does, such
-- as publishing to one broker. The nodes of 00011 do all work.
CREATE TABLE backbone.work_nodes (
    seen_at timestamptz NOT NULL,
    work    text COLLATE "C" NOT NULL, -- what is shared
    node    text COLLATE "C" NOT NULL,
    CONSTRAINT work_nodes_pkey PRIMARY KEY (work, node)
) WITH (fillfactor = 50);

-- Leases on work that never comes back are deleted.
GRANT DELETE ON backbone.leases TO backbone_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.work_nodes TO backbone_app;
GRANT SELECT ON backbone.work_nodes TO backbone_reader;

-- Headers of an endpoint's owner, sent in addition to the product's. Their values are
-- secrets of the owner: encrypted under a key that is derived, like the signing secret,
-- from a secret of the tenant that the key store keeps wrapped.
ALTER TABLE backbone.webhook_endpoints
    ADD COLUMN header_names text[] NOT NULL DEFAULT '{}',
    ADD COLUMN headers      bytea; -- NULL: none

-- The outcome of the newest attempts to deliver to each endpoint: codes and ids, never
-- content of an event or of an endpoint's answer.
CREATE TABLE backbone.webhook_attempts (
    subscription uuid NOT NULL, -- uid
    event_id     uuid NOT NULL,
    attempted_at timestamptz NOT NULL,
    next_at      timestamptz, -- of the next attempt; NULL: none
    sequence     bigint NOT NULL CHECK (sequence > 0),
    partition_id integer NOT NULL CHECK (partition_id > 0),
    attempt      integer NOT NULL CHECK (attempt > 0),
    status       integer NOT NULL, -- of the answer; 0: none
    duration_ms  integer NOT NULL,
    code         text NOT NULL, -- '': accepted
    CONSTRAINT webhook_attempts_pkey PRIMARY KEY (subscription, attempted_at, partition_id, sequence)
) WITH (fillfactor = 90);

GRANT SELECT, INSERT, DELETE ON backbone.webhook_attempts TO backbone_app;
