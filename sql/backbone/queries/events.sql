-- Reads of the log. Fetches are by primary key; searches answer sequences only,
-- each through one index, so that a filter never decides the plan.

-- name: GetEventByID :one
SELECT sqlc.embed(e), p.salt, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.id = @id;

-- name: ListEventsOfStream :many
SELECT sqlc.embed(e), p.salt, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version >= @from_version::bigint
ORDER BY e.stream_version
LIMIT @page_size::int;

-- name: ListEventsOfStreamBackward :many
SELECT sqlc.embed(e), p.salt, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence AND @with_payload::bool
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version <= @from_version::bigint
ORDER BY e.stream_version DESC
LIMIT @page_size::int;

-- name: ListEventsOfStreamAsOf :many
SELECT sqlc.embed(e), p.salt, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence AND @with_payload::bool
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version >= @from_version::bigint AND e.sequence <= @until::bigint AND e.effective_date <= @effective_to::date
ORDER BY e.stream_version
LIMIT @page_size::int;

-- name: ListEventsOfStreamAsOfBackward :many
SELECT sqlc.embed(e), p.salt, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence AND @with_payload::bool
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version <= @from_version::bigint AND e.sequence <= @until::bigint AND e.effective_date <= @effective_to::date
ORDER BY e.stream_version DESC
LIMIT @page_size::int;

-- name: ListEventsAfter :many
-- Payloads only of the given types; of all when none is named.
SELECT sqlc.embed(e), p.salt, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
      AND (cardinality(@types::text[]) = 0 OR e.type = ANY (@types::text[]))
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.sequence > @after::bigint
ORDER BY e.sequence
LIMIT @page_size::int;

-- name: ListEventsBySequence :many
-- In no particular order. The probe asks for an order and not for equality, so that
-- only the primary key can answer it, whatever the planner knows about the table.
SELECT e.*
FROM (SELECT unnest(@sequences::bigint[]) AS wanted) k
CROSS JOIN LATERAL (
    SELECT x.* FROM backbone.events x
    WHERE x.partition_id = @partition_id AND x.sequence >= k.wanted
    ORDER BY x.sequence
    LIMIT 1
) e
WHERE e.sequence = k.wanted;

-- name: ListPayloadsBySequence :many
SELECT p.sequence, p.salt, p.payload
FROM (SELECT unnest(@sequences::bigint[]) AS wanted) k
CROSS JOIN LATERAL (
    SELECT x.sequence, x.salt, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = k.wanted
    LIMIT 1
) p;
