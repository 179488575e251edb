-- +goose Up

-- Only the owner has privileges on these tables; the functions are the only writers and
-- readers, and each checks its arguments.

-- The key encryption keys. KMS holds the keys themselves.
CREATE TABLE keystore.tenant_keks (
    tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    epoch        integer NOT NULL CHECK (epoch > 0),
    kms_key_id   text NOT NULL CHECK (kms_key_id <> ''),
    state        text NOT NULL CHECK (state IN ('pending', 'active', 'draining', 'deleting', 'deleted')),
    created_at   timestamptz NOT NULL,
    activated_at timestamptz,
    drained_at   timestamptz, -- since when it drains
    deleting_at  timestamptz,
    deleted_at   timestamptz,
    CONSTRAINT tenant_keks_pkey PRIMARY KEY (tenant_id, epoch)
);

CREATE UNIQUE INDEX tenant_keks_active ON keystore.tenant_keks (tenant_id) WHERE state = 'active';
CREATE UNIQUE INDEX tenant_keks_draining ON keystore.tenant_keks (tenant_id) WHERE state = 'draining';

-- One row per key of a person, which appends lease and erasures lock. It is never
-- written on the hot path. A fence is a row of another table, so that setting it does not
-- wait for leases; "absent" is no row.
CREATE TABLE keystore.data_subjects (
    created_at     timestamptz NOT NULL,
    destroyed_at   timestamptz,
    key_ref        uuid NOT NULL, -- random; the only name of a subject that leaves the store
    partition_id   integer NOT NULL CHECK (partition_id > 0),
    active_version integer NOT NULL, -- 0: destroyed
    class          smallint NOT NULL CHECK (class BETWEEN 0 AND 2),
    tenant_id      text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    subject_id     text COLLATE "C" NOT NULL CHECK (octet_length(subject_id) BETWEEN 1 AND 128),
    state          text COLLATE "C" NOT NULL CHECK (state IN ('active', 'destroyed')),
    CONSTRAINT data_subjects_pkey PRIMARY KEY (partition_id, subject_id, class),
    CONSTRAINT data_subjects_key_ref UNIQUE (key_ref),
    CONSTRAINT data_subjects_version CHECK ((state = 'active') = (active_version > 0)),
    CONSTRAINT data_subjects_destroyed CHECK ((state = 'destroyed') = (destroyed_at IS NOT NULL))
);

-- Every version of every key, wrapped: only the KMS can open it. Destroying a key
-- deletes its rows.
CREATE TABLE keystore.data_subject_keys (
    created_at   timestamptz NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL CHECK (version > 0),
    kek_epoch    integer NOT NULL,
    class        smallint NOT NULL,
    tenant_id    text COLLATE "C" NOT NULL,
    subject_id   text COLLATE "C" NOT NULL,
    wrapped      bytea NOT NULL CHECK (octet_length(wrapped) BETWEEN 1 AND 6144),
    fingerprint  bytea NOT NULL CHECK (octet_length(fingerprint) = 16),
    CONSTRAINT data_subject_keys_pkey PRIMARY KEY (partition_id, subject_id, class, version),
    CONSTRAINT data_subject_keys_subject FOREIGN KEY (partition_id, subject_id, class) REFERENCES keystore.data_subjects,
    CONSTRAINT data_subject_keys_kek FOREIGN KEY (tenant_id, kek_epoch) REFERENCES keystore.tenant_keks
);

CREATE INDEX data_subject_keys_epoch ON keystore.data_subject_keys (tenant_id, kek_epoch);

-- Fences refuse new keys and leases of a subject: set when an erasure begins, permanent
-- unless the erasure is refused. Rows are never deleted.
CREATE TABLE keystore.subject_fences (
    fenced_at    timestamptz NOT NULL,
    lifted_at    timestamptz,
    request_id   uuid NOT NULL,
    partition_id integer NOT NULL CHECK (partition_id > 0),
    class        smallint NOT NULL CHECK (class BETWEEN 0 AND 2),
    subject_id   text COLLATE "C" NOT NULL CHECK (octet_length(subject_id) BETWEEN 1 AND 128),
    CONSTRAINT subject_fences_pkey PRIMARY KEY (partition_id, subject_id, class)
);

CREATE INDEX subject_fences_request ON keystore.subject_fences (request_id);

CREATE TABLE keystore.legal_holds (
    hold_id      uuid PRIMARY KEY,
    placed_at    timestamptz NOT NULL,
    released_at  timestamptz,
    until        date, -- in force through this day; null: until it is released
    partition_id integer NOT NULL CHECK (partition_id >= 0), -- 0: all of the tenant
    tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    subject_id   text COLLATE "C" NOT NULL CHECK (octet_length(subject_id) BETWEEN 1 AND 128),
    reason       text NOT NULL,
    placed_by    text COLLATE "C" NOT NULL CHECK (placed_by <> ''),
    released_by  text COLLATE "C" CHECK (released_by <> ''),
    CONSTRAINT legal_holds_released CHECK ((released_at IS NULL) = (released_by IS NULL))
);

CREATE INDEX legal_holds_subject ON keystore.legal_holds (subject_id, tenant_id);

-- The erasure requests. Every change is a compare-and-set on revision.
CREATE TABLE keystore.pii_deletion_log (
    request_id       uuid PRIMARY KEY,
    requested_at     timestamptz NOT NULL,
    approved_at      timestamptz,
    destroyed_at     timestamptz,
    evicted_at       timestamptz,
    completed_at     timestamptz,
    updated_at       timestamptz NOT NULL,
    generation       bigint NOT NULL DEFAULT 0, -- of the store after the keys were destroyed
    receipt          bigint NOT NULL DEFAULT 0, -- number; 0: none yet
    due_on           date NOT NULL,
    revision         integer NOT NULL CHECK (revision > 0),
    attempts         integer NOT NULL DEFAULT 0, -- at the next step
    all_entities     boolean NOT NULL,
    tenant_id        text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    subject_id       text COLLATE "C" NOT NULL CHECK (octet_length(subject_id) BETWEEN 1 AND 128),
    basis            text NOT NULL CHECK (basis <> ''),
    reason           text NOT NULL CHECK (octet_length(reason) <= 1000),
    requester_person text COLLATE "C" NOT NULL CHECK (requester_person <> ''),
    approver_person  text COLLATE "C",
    ended_by         text COLLATE "C",
    end_reason       text,
    last_error       text,
    state            text COLLATE "C" NOT NULL,
    partitions       integer[] NOT NULL CHECK (cardinality(partitions) > 0),
    erased_classes   smallint[] NOT NULL DEFAULT '{}', -- classes that the fences are set for
    scope            bytea CHECK (octet_length(scope) = 32),
    preview          json,
    classes          json,
    results          json,
    -- An approval refers to it.
    CONSTRAINT pii_deletion_log_requester UNIQUE (request_id, requester_person),
    CONSTRAINT pii_deletion_log_two_persons CHECK (approver_person <> requester_person)
);

-- One request at a time for a subject.
CREATE UNIQUE INDEX pii_deletion_log_open ON keystore.pii_deletion_log (subject_id, tenant_id)
    WHERE state NOT IN ('completed', 'rejected', 'withdrawn', 'expired', 'refused');
CREATE INDEX pii_deletion_log_tenant ON keystore.pii_deletion_log (tenant_id, requested_at DESC, request_id DESC);
-- Workers query every second for the requests that have not ended.
CREATE INDEX pii_deletion_log_state ON keystore.pii_deletion_log (state, requested_at DESC, request_id DESC);

-- The approvals by a second person. The row holds the requester, bound by the foreign key,
-- so that the check compares with the request's person, whatever the caller passes. A
-- request whose scope changed gets another approval under another revision.
CREATE TABLE keystore.pii_deletion_approvals (
    request_id       uuid NOT NULL,
    revision         integer NOT NULL, -- of the request as it was approved
    approved_at      timestamptz NOT NULL, -- by the caller's clock
    stored_at        timestamptz NOT NULL, -- by the database's clock
    requester_person text COLLATE "C" NOT NULL,
    approver_person  text COLLATE "C" NOT NULL,
    scope            bytea NOT NULL CHECK (octet_length(scope) = 32),
    CONSTRAINT pii_deletion_approvals_pkey PRIMARY KEY (request_id, revision),
    CONSTRAINT pii_deletion_approvals_request FOREIGN KEY (request_id, requester_person)
        REFERENCES keystore.pii_deletion_log (request_id, requester_person),
    CONSTRAINT pii_deletion_approvals_two_persons CHECK (approver_person <> requester_person AND approver_person <> '')
);

-- The steps of a request, one row each.
CREATE TABLE keystore.pii_deletion_steps (
    request_id uuid NOT NULL REFERENCES keystore.pii_deletion_log,
    revision   integer NOT NULL,
    done_at    timestamptz NOT NULL,
    attempts   integer NOT NULL, -- that failed before
    state      text NOT NULL,    -- reached
    person     text,
    CONSTRAINT pii_deletion_steps_pkey PRIMARY KEY (request_id, revision)
);

-- Numbered without gaps. A receipt that was replayed may belong to a request that this
-- database lacks.
CREATE TABLE keystore.erasure_receipts (
    number       bigint PRIMARY KEY CHECK (number > 0),
    destroyed_at timestamptz NOT NULL,
    generation   bigint NOT NULL,
    request_id   uuid NOT NULL CONSTRAINT erasure_receipts_request UNIQUE,
    exported     boolean NOT NULL DEFAULT false,
    tenant_id    text COLLATE "C" NOT NULL,
    keys         json NOT NULL, -- [{partition, class, reference, fingerprints: [hex]}]
    note         bytea          -- signed; null until then
);

-- Secrets of a tenant that are no subject's.
CREATE TABLE keystore.tenant_secrets (
    created_at  timestamptz NOT NULL,
    secret_ref  uuid NOT NULL CONSTRAINT tenant_secrets_ref UNIQUE,
    version     integer NOT NULL CHECK (version > 0),
    kek_epoch   integer NOT NULL,
    tenant_id   text COLLATE "C" NOT NULL,
    purpose     text COLLATE "C" NOT NULL CHECK (purpose <> ''),
    wrapped     bytea NOT NULL CHECK (octet_length(wrapped) BETWEEN 1 AND 6144),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 16),
    CONSTRAINT tenant_secrets_pkey PRIMARY KEY (tenant_id, purpose),
    CONSTRAINT tenant_secrets_kek FOREIGN KEY (tenant_id, kek_epoch) REFERENCES keystore.tenant_keks
);

-- One row, raised by every destruction.
CREATE TABLE keystore.generation (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    generation bigint NOT NULL
);

INSERT INTO keystore.generation (generation) VALUES (0);

-- The generation up to which each node has evicted destroyed keys.
CREATE TABLE keystore.nodes (
    node_id    text COLLATE "C" PRIMARY KEY CHECK (octet_length(node_id) BETWEEN 1 AND 128),
    generation bigint NOT NULL,
    seen_at    timestamptz NOT NULL
);
