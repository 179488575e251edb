-- name: GetEventTypeGeneration :one
SELECT g.generation FROM backbone.event_type_generation g;

-- name: AdvanceEventTypeGeneration :one
-- The row lock serialises registrations.
UPDATE backbone.event_type_generation SET generation = generation + 1 RETURNING generation;

-- name: ListEventTypes :many
-- The last deprecation or reactivation decides whether a version is active; the
-- registration itself never changes.
SELECT r.document, r.registered_at, r.registered_by, t.number, coalesce((
    SELECT h.action = 'registry.type.reactivated' FROM backbone.event_type_history h
    WHERE h.tenant_id = r.tenant_id AND h.type = r.type AND h.schema_version = r.schema_version AND h.action <> 'registry.type.registered'
    ORDER BY h.change DESC LIMIT 1), r.is_active)::boolean AS is_active
FROM backbone.event_type_registry r
JOIN backbone.event_types t ON t.type = r.type
ORDER BY r.type, r.schema_version;

-- name: InsertEventType :exec
INSERT INTO backbone.event_types (type, number)
SELECT @type::text, coalesce(max(t.number), 0) + 1 FROM backbone.event_types t
ON CONFLICT (type) DO NOTHING;

-- name: GetEventTypeNumber :one
SELECT t.number FROM backbone.event_types t WHERE t.type = @type;

-- name: InsertEventTypeVersion :exec
INSERT INTO backbone.event_type_registry (
    tenant_id, type, schema_version, module, retention_class, is_active, document, registered_at, registered_by
)
VALUES (@tenant_id, @type, @schema_version, @module, @retention_class, @is_active, @document, @registered_at, @registered_by);

-- name: ListEventTypeVersions :many
SELECT r.tenant_id, r.schema_version, r.document, coalesce((
    SELECT h.action = 'registry.type.reactivated' FROM backbone.event_type_history h
    WHERE h.tenant_id = r.tenant_id AND h.type = r.type AND h.schema_version = r.schema_version AND h.action <> 'registry.type.registered'
    ORDER BY h.change DESC LIMIT 1), r.is_active)::boolean AS is_active
FROM backbone.event_type_registry r
WHERE r.type = @type
ORDER BY r.schema_version;

-- name: InsertEventTypeChange :exec
INSERT INTO backbone.event_type_history (
    tenant_id, type, schema_version, change, action, digest, actor, reason, changed_at, checksum
)
VALUES (@tenant_id, @type, @schema_version, @change, @action, @digest, @actor, @reason, @changed_at, @checksum);

-- name: GetEventTypeChainEnd :one
-- The checksum that the next change continues. The caller holds the lock of the generation.
SELECT h.checksum FROM backbone.event_type_history h
ORDER BY h.change DESC, h.schema_version DESC
LIMIT 1;

-- name: ListEventTypeChain :many
-- The registry is that of all tenants: a row with a tenant is none of its changes.
SELECT h.change, h.type, h.schema_version, h.action, h.digest, h.actor, h.reason, h.changed_at, h.checksum
FROM backbone.event_type_history h
WHERE h.tenant_id = ''
ORDER BY h.change, h.schema_version;

-- name: ListEventTypeDigests :many
SELECT r.type, r.schema_version, sha256(convert_to(r.document::text, 'UTF8')) AS digest, r.registered_by, r.registered_at,
    (r.tenant_id = '' AND r.is_active)::boolean AS as_registered
FROM backbone.event_type_registry r
ORDER BY r.type, r.schema_version;

-- name: ListEventTypeHistory :many
-- Of all types when the name is empty.
SELECT h.change, h.type, h.schema_version, h.action, h.digest, h.actor, h.reason, h.changed_at, h.checksum
FROM backbone.event_type_history h
WHERE @type::text IN ('', h.type)
ORDER BY h.change, h.schema_version;
