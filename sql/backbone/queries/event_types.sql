-- name: GetEventTypeGeneration :one
SELECT g.generation FROM backbone.event_type_generation g;

-- name: AdvanceEventTypeGeneration :one
-- Its row lock serialises registrations.
UPDATE backbone.event_type_generation SET generation = generation + 1 RETURNING generation;

-- name: ListEventTypes :many
SELECT r.document, r.is_active, r.registered_at, r.registered_by, t.number
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

-- name: NotifyChannel :exec
SELECT pg_notify(@channel::text, @payload::text);
