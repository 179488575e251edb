-- name: GetSharedGeneration :one
SELECT count(*) AS generation FROM backbone.event_type_registry r WHERE r.tenant_id = '';

-- name: ListEventTypeGenerations :many
-- The number of the last change of each sealed chain.
SELECT g.tenant_id, g.last_change FROM backbone.event_type_generation g
WHERE sqlc.narg(tenant_id)::text IS NULL OR g.tenant_id = sqlc.narg(tenant_id)
ORDER BY g.tenant_id;

-- name: LockEventTypes :exec
-- Serialises the sessions that assign numbers to types.
SELECT FROM backbone.event_type_generation g WHERE g.tenant_id = '' FOR UPDATE;

-- name: ListSharedEventTypes :many
-- Without the versions that were moved to tenants.
SELECT r.document, r.registered_at, r.registered_by, t.number
FROM backbone.event_type_registry r
JOIN backbone.event_types t ON t.type = r.type
WHERE r.tenant_id = ''
    AND NOT EXISTS (
        SELECT FROM backbone.event_type_history h
        WHERE h.tenant_id = '' AND h.type = r.type AND h.schema_version = r.schema_version AND h.action = 'registry.type.moved'
    )
ORDER BY r.type, r.schema_version, r.amendment;

-- name: ListEventTypeNames :many
SELECT t.type, t.number, t.is_shared FROM backbone.event_types t WHERE t.type = ANY (@types::text[]);

-- name: InsertEventType :exec
INSERT INTO backbone.event_types (type, number, is_shared)
SELECT @type::text, coalesce(max(t.number), 0) + 1, @is_shared::boolean FROM backbone.event_types t
ON CONFLICT (type) DO NOTHING;

-- name: InsertEventTypeVersion :exec
INSERT INTO backbone.event_type_registry (
    tenant_id, type, schema_version, amendment, module, retention_class, is_active, document, registered_at, registered_by
)
VALUES ('', @type, @schema_version, @amendment, @module, @retention_class, true, @document, @registered_at, @registered_by);

-- name: ListEventTypeChains :many
-- Of all registries, or of one.
SELECT h.tenant_id, h.change, h.type, h.schema_version, h.action, h.digest, h.actor, h.reason, h.changed_at, h.checksum
FROM backbone.event_type_history h
WHERE sqlc.narg(tenant_id)::text IS NULL OR h.tenant_id = sqlc.narg(tenant_id)
ORDER BY h.tenant_id, h.change, h.schema_version;

-- name: ListEventTypeVersions :many
-- Of all registries, or of one. Nothing changes is_active.
SELECT r.tenant_id, r.type, r.schema_version, r.amendment, r.document, r.registered_by, r.registered_at, r.is_active AS as_registered
FROM backbone.event_type_registry r
WHERE sqlc.narg(tenant_id)::text IS NULL OR r.tenant_id = sqlc.narg(tenant_id)
ORDER BY r.tenant_id, r.type, r.schema_version, r.amendment;
