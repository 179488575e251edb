-- +goose Up

-- The history of the registry: who registered, deprecated or reactivated which version,
-- when and why. A change writes its row in its own transaction, under the lock of
-- event_type_generation, whose value is the change's number. Rows are never changed or
-- deleted; the last row of a version decides whether it accepts new events.
CREATE TABLE backbone.event_type_history (
    changed_at     timestamptz NOT NULL,
    change         bigint NOT NULL CHECK (change > 0),
    schema_version integer NOT NULL,
    tenant_id      text COLLATE "C" NOT NULL,
    type           text COLLATE "C" NOT NULL,
    action         text NOT NULL CHECK (action IN ('registry.type.registered', 'registry.type.deprecated', 'registry.type.reactivated')),
    actor          text NOT NULL,
    reason         text NOT NULL CHECK (octet_length(reason) <= 1000),
    digest         bytea NOT NULL CHECK (octet_length(digest) = 32), -- SHA-256 of the version's document
    CONSTRAINT event_type_history_pkey PRIMARY KEY (tenant_id, type, schema_version, change)
);

-- Versions that were registered before there was a history. Each of them had advanced the
-- generation by one.
INSERT INTO backbone.event_type_history (changed_at, change, schema_version, tenant_id, type, action, actor, reason, digest)
SELECT r.registered_at, row_number() OVER (ORDER BY r.registered_at, r.type, r.schema_version), r.schema_version, r.tenant_id, r.type,
    'registry.type.registered', r.registered_by, '', sha256(convert_to(r.document::text, 'UTF8'))
FROM backbone.event_type_registry r;

GRANT SELECT, INSERT ON backbone.event_type_history TO backbone_app;
GRANT SELECT ON backbone.event_type_history TO backbone_reader, backbone_eraser;
