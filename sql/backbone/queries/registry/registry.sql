-- name: GetEventTypeGeneration :one
SELECT coalesce(max(g.last_change), 0)::bigint AS generation FROM backbone.event_type_generation g
WHERE g.tenant_id = @tenant_id;

-- name: ListEventTypeGenerations :many
SELECT g.tenant_id, g.last_change FROM backbone.event_type_generation g
ORDER BY g.tenant_id;

-- name: LockEventTypes :exec
-- The lock of the shared registry's row serialises the changes of all registries.
SELECT FROM backbone.event_type_generation g WHERE g.tenant_id = '' FOR UPDATE;

-- name: AdvanceEventTypeGeneration :one
INSERT INTO backbone.event_type_generation AS g (tenant_id, last_change) VALUES (@tenant_id, 1)
ON CONFLICT (tenant_id) DO UPDATE SET last_change = g.last_change + 1
RETURNING g.last_change;

-- name: ListEventTypes :many
SELECT r.document, r.registered_at, r.registered_by, t.number
FROM backbone.event_type_registry r
JOIN backbone.event_types t ON t.type = r.type
WHERE r.tenant_id = @tenant_id
ORDER BY r.type, r.schema_version;

-- name: HasTypeElsewhere :one
-- Whether a registry of the other kind has the name: the shared one for a tenant's type, any
-- tenant's for a shared one.
SELECT EXISTS (
    SELECT FROM backbone.event_type_registry r
    WHERE r.type = @type AND (r.tenant_id = '') <> (@tenant_id::text = '')
        AND NOT EXISTS (
            SELECT FROM backbone.event_type_history h
            WHERE h.tenant_id = r.tenant_id AND h.type = r.type AND h.schema_version = r.schema_version AND h.action = 'registry.type.moved'
        )
);

-- name: InsertEventType :exec
INSERT INTO backbone.event_types (type, number)
SELECT @type::text, coalesce(max(t.number), 0) + 1 FROM backbone.event_types t
ON CONFLICT (type) DO NOTHING;

-- name: GetEventTypeNumber :one
SELECT t.number FROM backbone.event_types t WHERE t.type = @type;

-- name: InsertEventTypeVersion :exec
-- is_active never changes: the changes decide whether a version is active.
INSERT INTO backbone.event_type_registry (
    tenant_id, type, schema_version, module, retention_class, is_active, document, registered_at, registered_by
)
VALUES (@tenant_id, @type, @schema_version, @module, @retention_class, true, @document, @registered_at, @registered_by);

-- name: ListEventTypeVersions :many
SELECT r.schema_version, r.document FROM backbone.event_type_registry r
WHERE r.tenant_id = @tenant_id AND r.type = @type
ORDER BY r.schema_version;

-- name: InsertEventTypeChange :exec
INSERT INTO backbone.event_type_history (
    tenant_id, type, schema_version, change, action, digest, actor, reason, changed_at, checksum
)
VALUES (@tenant_id, @type, @schema_version, @change, @action, @digest, @actor, @reason, @changed_at, @checksum);

-- name: GetEventTypeChainEnd :one
-- The checksum that the next change of a registry continues. The caller holds the lock.
SELECT h.checksum FROM backbone.event_type_history h
WHERE h.tenant_id = @tenant_id
ORDER BY h.change DESC, h.schema_version DESC
LIMIT 1;

-- name: ListEventTypeChains :many
SELECT h.tenant_id, h.change, h.type, h.schema_version, h.action, h.digest, h.actor, h.reason, h.changed_at, h.checksum
FROM backbone.event_type_history h
ORDER BY h.tenant_id, h.change, h.schema_version;

-- name: ListEventTypeDigests :many
SELECT r.tenant_id, r.type, r.schema_version, sha256(convert_to(r.document::text, 'UTF8')) AS digest, r.registered_by, r.registered_at,
    r.is_active AS as_registered
FROM backbone.event_type_registry r
ORDER BY r.tenant_id, r.type, r.schema_version;

-- name: ListEventTypeHistory :many
-- Of all types of the registry when the name is empty.
SELECT h.tenant_id, h.change, h.type, h.schema_version, h.action, h.digest, h.actor, h.reason, h.changed_at, h.checksum
FROM backbone.event_type_history h
WHERE h.tenant_id = @tenant_id AND @type::text IN ('', h.type)
ORDER BY h.change, h.schema_version;
