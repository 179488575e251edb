-- name: GetEventTypeGeneration :one
SELECT g.generation FROM backbone.event_type_generation g;

-- name: AdvanceEventTypeGeneration :one
-- Its row lock serialises registrations.
UPDATE backbone.event_type_generation SET generation = generation + 1 RETURNING generation;

-- name: ListEventTypes :many
-- What was deprecated or reactivated last counts; the registration itself never
-- changes.
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
    tenant_id, type, schema_version, change, action, digest, actor, reason, changed_at
)
VALUES (@tenant_id, @type, @schema_version, @change, @action, @digest, @actor, @reason, @changed_at);

-- name: ListEventTypeHistory :many
SELECT h.change, h.schema_version, h.action, h.digest, h.actor, h.reason, h.changed_at
FROM backbone.event_type_history h
WHERE h.type = @type
ORDER BY h.change, h.schema_version;

-- name: NotifyChannel :exec
SELECT pg_notify(@channel::text, @payload::text);
