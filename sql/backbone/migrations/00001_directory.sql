-- +goose Up

-- It usually exists already: the version table of the migrations is in it.
CREATE SCHEMA IF NOT EXISTS backbone;

-- Directory tables are small and shared by all partitions; on a sharded cluster
-- they are reference tables. Everything else carries partition_id in every key.

-- The installation, fixed at bootstrap: one row, never changed. log_name is part of every
-- genesis checksum, deployment of every partition id.
CREATE TABLE backbone.installation (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    log_name   text NOT NULL CHECK (octet_length(log_name) BETWEEN 1 AND 512),
    deployment integer NOT NULL CHECK (deployment BETWEEN 0 AND 4095),
    created_at timestamptz NOT NULL
);

CREATE TABLE backbone.legal_entities (
    partition_id integer PRIMARY KEY CHECK (partition_id > 0),
    tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    code         text COLLATE "C" NOT NULL CHECK (code <> ''),
    name         text NOT NULL,
    time_zone    text NOT NULL,
    status       text NOT NULL,
    settings     json NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL,
    CONSTRAINT legal_entities_code UNIQUE (tenant_id, code)
);

-- The directory of callers. display_name is erasable and is joined on read.
CREATE TABLE backbone.principals (
    tenant_id      text COLLATE "C" NOT NULL,
    principal_id   text COLLATE "C" NOT NULL,
    person_id      text COLLATE "C" NOT NULL,
    actor_type     text NOT NULL,
    display_name   text NOT NULL,
    role_label     text NOT NULL,
    roles          text[] NOT NULL,
    legal_entities text[] NOT NULL,
    token_hash     bytea NOT NULL,
    development    boolean NOT NULL,
    expires_at     timestamptz,
    created_at     timestamptz NOT NULL,
    CONSTRAINT principals_pkey PRIMARY KEY (tenant_id, principal_id),
    CONSTRAINT principals_token UNIQUE (token_hash)
);

CREATE INDEX principals_person ON backbone.principals (tenant_id, person_id);

-- The key index holds a type's small number in place of its name. It is assigned once,
-- under the lock of event_type_generation, and shared by all versions.
CREATE TABLE backbone.event_types (
    type   text COLLATE "C" PRIMARY KEY,
    number integer NOT NULL CONSTRAINT event_types_number UNIQUE CHECK (number > 0)
);

CREATE TABLE backbone.event_type_registry (
    tenant_id       text COLLATE "C" NOT NULL, -- '' is for all tenants
    type            text COLLATE "C" NOT NULL REFERENCES backbone.event_types (type),
    schema_version  integer NOT NULL CHECK (schema_version > 0),
    module          text NOT NULL,
    retention_class text NOT NULL,
    is_active       boolean NOT NULL,
    document        json NOT NULL, -- the registration as its author sent it
    registered_at   timestamptz NOT NULL,
    registered_by   text NOT NULL,
    CONSTRAINT event_type_registry_pkey PRIMARY KEY (tenant_id, type, schema_version)
);

-- One row: its lock serialises registrations, and every node reads the registry again when
-- its value has grown.
CREATE TABLE backbone.event_type_generation (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    generation bigint NOT NULL
);

INSERT INTO backbone.event_type_generation (generation) VALUES (0);
