-- +goose Up

-- Persistent subscriptions. The definition belongs to a tenant and is shared by all
-- partitions; on a sharded cluster it is a reference table, and so is the list of
-- consumers, which only pinned groups write.
CREATE TABLE backbone.subscriptions (
    uid             uuid NOT NULL CONSTRAINT subscriptions_uid UNIQUE, -- of this subscription; a later one with the same id has another
    tenant_id       text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    subscriber_type text NOT NULL,
    subscriber_id   text NOT NULL,
    definition      json NOT NULL, -- filter and settings
    status          text NOT NULL CHECK (status IN ('active', 'paused', 'parked')),
    owner           text NOT NULL,
    revision        bigint NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    failures        integer NOT NULL, -- in a row
    failure_code    text,
    failed_at       timestamptz,
    CONSTRAINT subscriptions_pkey PRIMARY KEY (tenant_id, id)
);

CREATE TABLE backbone.subscription_consumers (
    subscription uuid NOT NULL,
    consumer     text COLLATE "C" NOT NULL,
    active_until timestamptz NOT NULL,
    CONSTRAINT subscription_consumers_pkey PRIMARY KEY (subscription, consumer)
);

-- The position of a subscription in a legal entity. Every transaction that delivers or
-- settles messages there holds the row's lock.
CREATE TABLE backbone.subscription_cursors (
    subscription uuid NOT NULL,
    partition_id integer NOT NULL,
    read_through bigint NOT NULL CHECK (read_through >= 0),
    checkpoint   bigint NOT NULL CHECK (checkpoint >= 0),
    pending      integer NOT NULL,
    term         bigint NOT NULL,
    counts       json NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT subscription_cursors_pkey PRIMARY KEY (subscription, partition_id)
) WITH (fillfactor = 50);

-- Messages in flight, waiting or parked. A processed event has no row, and no row holds a
-- part of a payload: order_key is a hash.
CREATE TABLE backbone.subscription_messages (
    subscription uuid NOT NULL,
    partition_id integer NOT NULL,
    sequence     bigint NOT NULL CHECK (sequence > 0),
    event_id     uuid NOT NULL,
    order_key    bytea NOT NULL CHECK (octet_length(order_key) = 16),
    state        text NOT NULL CHECK (state IN ('waiting', 'leased', 'retry', 'parked')),
    consumer     text COLLATE "C" NOT NULL,
    attempts     integer NOT NULL,
    due_at       timestamptz, -- NULL: waiting or parked
    handed_at    timestamptz,
    code         text COLLATE "C" NOT NULL CHECK (octet_length(code) <= 100),
    detail       text NOT NULL CHECK (octet_length(detail) <= 1000),
    changed_at   timestamptz NOT NULL,
    CONSTRAINT subscription_messages_pkey PRIMARY KEY (subscription, partition_id, sequence)
);

CREATE INDEX subscription_messages_due ON backbone.subscription_messages (due_at) WHERE due_at IS NOT NULL;

-- Decisions about dead letters, with actor and reason. Rows are never changed or deleted.
CREATE TABLE backbone.subscription_decisions (
    partition_id integer NOT NULL,
    id           uuid NOT NULL,
    tenant_id    text COLLATE "C" NOT NULL,
    subscription text COLLATE "C" NOT NULL, -- its id, which outlives it
    sequence     bigint NOT NULL,
    event_id     uuid NOT NULL,
    action       text NOT NULL CHECK (action IN ('discard', 'replay', 'skip')),
    actor        text NOT NULL,
    reason       text NOT NULL CHECK (octet_length(reason) <= 1000),
    code         text NOT NULL,
    at           timestamptz NOT NULL,
    CONSTRAINT subscription_decisions_pkey PRIMARY KEY (partition_id, tenant_id, subscription, id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON
    backbone.subscriptions, backbone.subscription_consumers, backbone.subscription_cursors, backbone.subscription_messages
    TO backbone_app;
GRANT SELECT, INSERT ON backbone.subscription_decisions TO backbone_app;
GRANT SELECT ON backbone.subscriptions, backbone.subscription_cursors, backbone.subscription_messages, backbone.subscription_decisions
    TO backbone_reader;
