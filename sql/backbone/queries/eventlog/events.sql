-- Reads of the log. Fetches are by primary key; searches return sequences only,
-- each through one index, so that a filter never decides the plan.

-- name: GetEventByID :one
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.id = @id;

-- name: ListEventTypes :many
-- The types of events of any partitions. Each event is one probe of the unique index of ids,
-- in its order, so that small tables are not scanned either.
SELECT u.partition_id::int AS partition_id, u.id::uuid AS id, e.type
FROM (SELECT unnest(@partition_ids::int[]) AS partition_id, unnest(@ids::uuid[]) AS id) u
CROSS JOIN LATERAL (
    SELECT x.id, x.type FROM backbone.events x
    WHERE x.partition_id = u.partition_id AND x.id >= u.id
    ORDER BY x.id
    LIMIT 1
) e
WHERE e.id = u.id;

-- name: ListEventsOfStream :many
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version >= @from_version::bigint
ORDER BY e.stream_version
LIMIT @page_size::int;

-- name: ListEventsOfStreamBackward :many
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence AND @with_payload::bool
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version <= @from_version::bigint
ORDER BY e.stream_version DESC
LIMIT @page_size::int;

-- name: ListEventsOfStreamAsOf :many
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence AND @with_payload::bool
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version >= @from_version::bigint AND e.sequence <= @until::bigint AND e.effective_date <= @effective_to::date
ORDER BY e.stream_version
LIMIT @page_size::int;

-- name: ListEventsOfStreamAsOfBackward :many
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence AND @with_payload::bool
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.stream_type = @stream_type AND e.stream_id = @stream_id
  AND e.stream_version <= @from_version::bigint AND e.sequence <= @until::bigint AND e.effective_date <= @effective_to::date
ORDER BY e.stream_version DESC
LIMIT @page_size::int;

-- name: ListEventsAfter :many
-- Payloads only of the given types; of all when none is named.
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
      AND (cardinality(@types::text[]) = 0 OR e.type = ANY (@types::text[]))
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.sequence > @after::bigint
ORDER BY e.sequence
LIMIT @page_size::int;

-- name: ListEventsOfTypesAfter :many
-- Of the next events those of the given types with their payloads, and the last one
-- whatever its type, without its payload unless it is of the types: the reader's new
-- position. The log has no gaps, so a range of sequences is a page.
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence AND e.type = ANY (@types::text[])
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.sequence > @after::bigint AND e.sequence <= @through::bigint
    AND (e.type = ANY (@types::text[]) OR e.sequence = (
        SELECT l.sequence FROM backbone.events l
        WHERE l.partition_id = @partition_id AND l.sequence > @after::bigint AND l.sequence <= @through::bigint
        ORDER BY l.sequence DESC
        LIMIT 1
    ))
ORDER BY e.sequence;

-- The three queries below fetch rows that are scattered over the table, in no particular
-- order. They run under ReadScattered, which makes them bitmap scans: those visit each
-- page once, in the order of pages on disk, and let the system read pages ahead; an index
-- scan waits for one page after the other.

-- name: ListEventsBySequence :many
SELECT e.* FROM backbone.events e
WHERE e.partition_id = @partition_id AND e.sequence = ANY (@sequences::bigint[]);

-- name: ListEventsOfCorrelation :many
-- The index of the search leads to the rows themselves: no page of the primary key is
-- read, which would be another one for each event.
SELECT e.* FROM backbone.events e
WHERE e.partition_id = @partition_id AND e.correlation_id = @correlation::text
  AND e.sequence >= @first_sequence::bigint AND e.sequence <= @last_sequence::bigint;

-- name: ListPayloadsBySequence :many
SELECT p.sequence, p.salt, p.redactions, p.payload FROM backbone.event_payloads p
WHERE p.partition_id = @partition_id AND p.sequence = ANY (@sequences::bigint[]);

-- name: ReadScattered :exec
-- Until the end of the transaction the planner uses bitmap scans only. Only pages and rows
-- cost anything, so that the condition that leaves the fewest of them is always part of
-- the search in the index, whatever the planner knows about the table. An operator's
-- setting for reading ahead stays if it is higher.
SELECT set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('cpu_operator_cost', '0', true), set_config('cpu_index_tuple_cost', '0', true),
       set_config('effective_io_concurrency', GREATEST(current_setting('effective_io_concurrency')::int, @read_ahead::int)::text, true);

-- name: GetReadAheadLimit :one
-- 0 where the server cannot announce its reads to the operating system.
SELECT s.max_val::int FROM pg_catalog.pg_settings s WHERE s.name = 'effective_io_concurrency';

-- name: ListSegmentsOfEvents :many
-- The segments of the archive that have payloads of the given events in their ranges. Ranges do not overlap.
SELECT DISTINCT s.first_sequence, s.last_sequence, s.event_sequence, s.records, s.object, s.object_digest, s.archived_at
FROM (SELECT unnest(@sequences::bigint[]) AS wanted) k
CROSS JOIN LATERAL (
    SELECT x.* FROM backbone.archive_segments x
    WHERE x.partition_id = @partition_id AND x.first_sequence <= k.wanted
    ORDER BY x.first_sequence DESC
    LIMIT 1
) s
WHERE s.last_sequence >= k.wanted
ORDER BY s.first_sequence;
