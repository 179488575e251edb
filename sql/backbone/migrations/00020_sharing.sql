-- +goose Up

-- The signs of life of nodes that share work which not every node of the installation
-- does, such as publishing to one broker. The nodes of 00011 do all work.
CREATE TABLE backbone.work_nodes (
    seen_at timestamptz NOT NULL,
    work    text COLLATE "C" NOT NULL, -- what is shared
    node    text COLLATE "C" NOT NULL,
    CONSTRAINT work_nodes_pkey PRIMARY KEY (work, node)
) WITH (fillfactor = 50);

-- Leases on work that is gone for ever are removed.
GRANT DELETE ON backbone.leases TO backbone_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.work_nodes TO backbone_app;
GRANT SELECT ON backbone.work_nodes TO backbone_reader;

-- Headers that an endpoint wants besides ours. Their values are secrets of its owner:
-- encrypted under a key that is derived, as the secret that signs, from one that the key
-- store keeps, wrapped, for the tenant.
ALTER TABLE backbone.webhook_endpoints
    ADD COLUMN header_names text[] NOT NULL DEFAULT '{}',
    ADD COLUMN headers      bytea; -- NULL: none

-- What came of the newest attempts to deliver to each endpoint: codes and ids, never a
-- word of an event or of an endpoint.
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
    code         text NOT NULL, -- '': taken
    CONSTRAINT webhook_attempts_pkey PRIMARY KEY (subscription, attempted_at, partition_id, sequence)
) WITH (fillfactor = 90);

GRANT SELECT, INSERT, DELETE ON backbone.webhook_attempts TO backbone_app;
