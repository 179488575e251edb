-- +goose Up

-- Parked messages move out of the table that every poll reads: a poll finds the open
-- messages without reading any dead letter. A transaction that parks, replays or discards
-- holds the lock of the cursor, which counts the parked messages.
CREATE TABLE backbone.subscription_parked (
    subscription uuid NOT NULL,
    partition_id integer NOT NULL,
    sequence     bigint NOT NULL CHECK (sequence > 0),
    event_id     uuid NOT NULL,
    order_key    bytea NOT NULL CHECK (octet_length(order_key) = 16),
    consumer     text COLLATE "C" NOT NULL,
    attempts     integer NOT NULL,
    handed_at    timestamptz,
    code         text COLLATE "C" NOT NULL CHECK (octet_length(code) <= 100),
    detail       text NOT NULL CHECK (octet_length(detail) <= 1000),
    changed_at   timestamptz NOT NULL,
    CONSTRAINT subscription_parked_pkey PRIMARY KEY (subscription, partition_id, sequence)
);

-- Polls look up which of their keys are blocked, answers look up messages by event.
CREATE INDEX subscription_parked_keys ON backbone.subscription_parked (subscription, partition_id, order_key, sequence);
CREATE INDEX subscription_parked_events ON backbone.subscription_parked (subscription, partition_id, event_id);

ALTER TABLE backbone.subscription_cursors ADD COLUMN parked bigint NOT NULL DEFAULT 0 CHECK (parked >= 0);

-- A node of the previous release must not park messages in the old table, which newer
-- nodes do not read: its statement fails, and the messages stay open until a newer node
-- works them.
LOCK TABLE backbone.subscription_cursors, backbone.subscription_messages IN ACCESS EXCLUSIVE MODE;

INSERT INTO backbone.subscription_parked
    (subscription, partition_id, sequence, event_id, order_key, consumer, attempts, handed_at, code, detail, changed_at)
SELECT subscription, partition_id, sequence, event_id, order_key, consumer, attempts, handed_at, code, detail, changed_at
FROM backbone.subscription_messages
WHERE state = 'parked';

DELETE FROM backbone.subscription_messages WHERE state = 'parked';

ALTER TABLE backbone.subscription_messages DROP CONSTRAINT subscription_messages_state_check;
ALTER TABLE backbone.subscription_messages ADD CONSTRAINT subscription_messages_state_check CHECK (state IN ('waiting', 'leased', 'retry'));

UPDATE backbone.subscription_cursors c
SET parked = p.messages
FROM (SELECT subscription, partition_id, count(*) AS messages FROM backbone.subscription_parked GROUP BY subscription, partition_id) p
WHERE p.subscription = c.subscription AND p.partition_id = c.partition_id;

-- One row for each tenant that has created a subscription: its lock serialises the
-- transactions that count subscriptions and create one.
CREATE TABLE backbone.subscription_tenants (
    tenant_id text COLLATE "C" NOT NULL,
    CONSTRAINT subscription_tenants_pkey PRIMARY KEY (tenant_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.subscription_parked TO backbone_app;
GRANT SELECT ON backbone.subscription_parked TO backbone_reader;
GRANT SELECT, INSERT, UPDATE ON backbone.subscription_tenants TO backbone_app;
