-- +goose Up

-- Indexed text is compared byte by byte: faster, and no index depends on the
-- operating system's collations.

-- The lock row and the genesis checksum of a partition. Never updated: the head is the
-- last row of events, so the lock row has one version even while old snapshots are open.
-- No hot table has a foreign key to it (each insert would add a multixact).
CREATE TABLE backbone.partition_heads (
    partition_id integer PRIMARY KEY CHECK (partition_id > 0),
    genesis      bytea NOT NULL CHECK (octet_length(genesis) = 32)
);

-- The skeleton. No statement of the product updates or deletes it. Empty text is NULL.
-- Columns are ordered by alignment. JSON columns are of type json, which keeps
-- the bytes that were hashed.
CREATE TABLE backbone.events (
    sequence            bigint NOT NULL,
    occurred_at         timestamptz NOT NULL,
    recorded_at         timestamptz NOT NULL,
    stream_version      bigint NOT NULL,
    partition_id        integer NOT NULL,
    schema_version      integer NOT NULL,
    effective_date      date NOT NULL,
    caused_by_partition integer,
    id                  uuid NOT NULL,
    caused_by           uuid,
    intent_id           uuid,
    type                text COLLATE "C" NOT NULL,
    tenant_id           text NOT NULL,
    legal_entity        text NOT NULL,
    division            text,
    region              text,
    site                text,
    custom_scopes       json,
    actor_type          text NOT NULL,
    actor_id            text COLLATE "C" NOT NULL,
    actor_name          text,
    actor_details       json,
    correlation_id      text COLLATE "C" NOT NULL,
    stream_type         text COLLATE "C" NOT NULL,
    stream_id           text COLLATE "C" NOT NULL,
    tags                text[],
    source_system       text,
    source_channel      text,
    source_reference    text,
    rules_evaluated     json,
    pii                 json, -- path -> class
    payload_hash        bytea NOT NULL,
    content_encoding    text,
    checksum            bytea NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (partition_id, sequence)
) PARTITION BY LIST (partition_id);

CREATE TABLE backbone.events_default PARTITION OF backbone.events DEFAULT;

-- Each index is one more write per event. These serve the reads of the product;
-- dates are filtered after one of them (recorded_at by bisection of the primary
-- key, since it never goes backwards). All but the primary key begin with the searched
-- column and not with partition_id: to a planner without statistics every index that
-- begins with partition_id is as good as any other, and it would look an id up by
-- reading the whole partition in another order. TestPlans checks this.
CREATE UNIQUE INDEX events_stream ON backbone.events (stream_id, stream_type, partition_id, stream_version);
CREATE INDEX events_type ON backbone.events (type, partition_id, sequence);
CREATE INDEX events_correlation ON backbone.events (correlation_id, partition_id, sequence);
CREATE INDEX events_actor ON backbone.events (actor_id, partition_id, sequence);
CREATE INDEX events_caused_by ON backbone.events (caused_by, partition_id) WHERE caused_by IS NOT NULL;
CREATE INDEX events_intent ON backbone.events (intent_id, partition_id) WHERE intent_id IS NOT NULL;
CREATE UNIQUE INDEX events_id ON backbone.events (id, partition_id);

-- The stored bytes of data, dimensions and entity references, and the salt of
-- their hash. They can be redacted or archived without a change of the skeleton.
CREATE TABLE backbone.event_payloads (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    salt         bytea NOT NULL,
    payload      json NOT NULL,
    CONSTRAINT event_payloads_pkey PRIMARY KEY (partition_id, sequence)
) PARTITION BY LIST (partition_id);

CREATE TABLE backbone.event_payloads_default PARTITION OF backbone.event_payloads DEFAULT;

-- The key index: one row per entity reference and tag of an event.
CREATE TABLE backbone.event_keys (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    type_no      integer NOT NULL,
    key          text COLLATE "C" NOT NULL CHECK (octet_length(key) <= 512),
    CONSTRAINT event_keys_pkey PRIMARY KEY (partition_id, key, sequence)
);

-- The rows below are updated often; free space on the page lets PostgreSQL update them
-- without writing to the index.
CREATE TABLE backbone.stream_versions (
    version        bigint NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence  bigint NOT NULL,
    partition_id   integer NOT NULL,
    stream_type    text COLLATE "C" NOT NULL,
    stream_id      text COLLATE "C" NOT NULL,
    lifecycle      text,
    metadata       json,
    CONSTRAINT stream_versions_pkey PRIMARY KEY (partition_id, stream_type, stream_id)
) WITH (fillfactor = 80);

CREATE TABLE backbone.business_keys (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    event_id     uuid NOT NULL,
    event_type   text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL CHECK (octet_length(key) <= 512),
    document     text,
    CONSTRAINT business_keys_pkey PRIMARY KEY (partition_id, event_type, key)
);

CREATE TABLE backbone.idempotency_keys (
    first_sequence bigint NOT NULL,
    expires_at     timestamptz NOT NULL,
    partition_id   integer NOT NULL,
    event_count    integer NOT NULL,
    intent_id      uuid,
    key            text COLLATE "C" NOT NULL CHECK (octet_length(key) <= 512),
    fingerprint    bytea NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (partition_id, key)
);

-- Rows expire about in the order of their insertion, so that a block range index, which
-- costs an insert next to nothing, finds them.
CREATE INDEX idempotency_keys_expiry ON backbone.idempotency_keys USING brin (expires_at);

CREATE TABLE backbone.number_series (
    next_number  bigint NOT NULL,
    partition_id integer NOT NULL,
    series       text COLLATE "C" NOT NULL,
    CONSTRAINT number_series_pkey PRIMARY KEY (partition_id, series)
) WITH (fillfactor = 50);

CREATE TABLE backbone.intents (
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    first_sequence   bigint NOT NULL, -- 0: no events
    partition_id     integer NOT NULL,
    event_count      integer NOT NULL,
    revision         integer NOT NULL,
    effective_date   date,
    id               uuid NOT NULL,
    caused_by        uuid,
    legal_entity     text NOT NULL,
    type             text NOT NULL,
    status           text COLLATE "C" NOT NULL,
    actor_type       text NOT NULL,
    actor_id         text NOT NULL,
    actor_name       text,
    actor_details    json,
    person_id        text,
    roles            text[],
    correlation_id   text,
    source_system    text,
    source_channel   text,
    source_reference text,
    plan_hash        text,
    need             json,
    approvals        json,
    rules            json,
    refusal          json,
    payload          json,
    CONSTRAINT intents_pkey PRIMARY KEY (partition_id, id)
) WITH (fillfactor = 80);

CREATE INDEX intents_waiting ON backbone.intents (partition_id, created_at, id) WHERE status = 'pending_approval';

CREATE TABLE backbone.projection_checkpoints (
    sequence     bigint NOT NULL,
    updated_at   timestamptz NOT NULL,
    version      integer NOT NULL,
    partition_id integer NOT NULL,
    projection   text COLLATE "C" NOT NULL,
    status       text NOT NULL,
    error        text,
    CONSTRAINT projection_checkpoints_pkey PRIMARY KEY (projection, version, partition_id)
) WITH (fillfactor = 50);
