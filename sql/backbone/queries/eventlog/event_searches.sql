-- Searches by one index each, forward and backward. Bounds: after (exclusive) and
-- until (inclusive) are sequences; a backward search begins at until. They return
-- candidates; MatchEvents applies all other filters, so that no filter makes a scan
-- longer than its page.

-- name: SearchKey :many
SELECT x.sequence FROM backbone.event_keys x
    WHERE x.partition_id = @partition_id AND x.key = @key AND x.sequence > @after::bigint AND x.sequence <= @until::bigint
    ORDER BY x.sequence
    LIMIT @page_size::int;

-- name: SearchCorrelation :many
SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.correlation_id = @correlation::text AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence
    LIMIT @page_size::int;

-- name: SearchActor :many
SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.actor_id = @actor::text AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence
    LIMIT @page_size::int;

-- name: SearchTypes :many
SELECT s.sequence
FROM (SELECT unnest(@types::text[]) AS type) t
CROSS JOIN LATERAL (
    SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.type = t.type AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence
    LIMIT @page_size::int
) s
ORDER BY s.sequence
LIMIT @page_size::int;

-- name: SearchLog :many
SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence
    LIMIT @page_size::int;

-- name: SearchKeyBackward :many
SELECT x.sequence FROM backbone.event_keys x
    WHERE x.partition_id = @partition_id AND x.key = @key AND x.sequence > @after::bigint AND x.sequence <= @until::bigint
    ORDER BY x.sequence DESC
    LIMIT @page_size::int;

-- name: SearchCorrelationBackward :many
SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.correlation_id = @correlation::text AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence DESC
    LIMIT @page_size::int;

-- name: SearchActorBackward :many
SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.actor_id = @actor::text AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence DESC
    LIMIT @page_size::int;

-- name: SearchTypesBackward :many
SELECT s.sequence
FROM (SELECT unnest(@types::text[]) AS type) t
CROSS JOIN LATERAL (
    SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.type = t.type AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence DESC
    LIMIT @page_size::int
) s
ORDER BY s.sequence DESC
LIMIT @page_size::int;

-- name: SearchLogBackward :many
SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.sequence > @after::bigint AND e.sequence <= @until::bigint
    ORDER BY e.sequence DESC
    LIMIT @page_size::int;

-- name: MatchEvents :many
-- The candidates that pass all filters, in no particular order, probed like
-- ListEventsBySequence. It reads payloads only for filters on them: a value of a
-- dimension; json_path, which must lead to something (and equal_path, if there is one,
-- to nothing); or a text that one of the texts at json_path must contain. Payloads that are not
-- in the table, since they are archived, are given by sequence.
SELECT e.sequence
FROM (SELECT unnest(@sequences::bigint[]) AS wanted) k
CROSS JOIN LATERAL (
    SELECT x.sequence, x.type, x.schema_version, x.correlation_id, x.actor_id, x.occurred_at, x.effective_date,
           x.division, x.region, x.site, x.source_system, x.source_channel, x.source_reference
    FROM backbone.events x
    WHERE x.partition_id = @partition_id AND x.sequence >= k.wanted
    ORDER BY x.sequence
    LIMIT 1
) e
WHERE e.sequence = k.wanted
  AND (cardinality(@types::text[]) = 0 OR e.type = ANY (@types::text[]))
  AND (sqlc.narg(schema_version)::int IS NULL OR e.schema_version = sqlc.narg(schema_version))
  AND (sqlc.narg(correlation_id)::text IS NULL OR e.correlation_id = sqlc.narg(correlation_id))
  AND (sqlc.narg(actor_id)::text IS NULL OR e.actor_id = sqlc.narg(actor_id))
  AND (sqlc.narg(occurred_from)::timestamptz IS NULL OR e.occurred_at >= sqlc.narg(occurred_from))
  AND (sqlc.narg(occurred_to)::timestamptz IS NULL OR e.occurred_at < sqlc.narg(occurred_to))
  AND (sqlc.narg(effective_from)::date IS NULL OR e.effective_date >= sqlc.narg(effective_from))
  AND (sqlc.narg(effective_to)::date IS NULL OR e.effective_date <= sqlc.narg(effective_to))
  AND (sqlc.narg(division)::text IS NULL OR e.division = sqlc.narg(division))
  AND (sqlc.narg(region)::text IS NULL OR e.region = sqlc.narg(region))
  AND (sqlc.narg(site)::text IS NULL OR e.site = sqlc.narg(site))
  AND (sqlc.narg(source_system)::text IS NULL OR e.source_system = sqlc.narg(source_system))
  AND (sqlc.narg(source_channel)::text IS NULL OR e.source_channel = sqlc.narg(source_channel))
  AND (sqlc.narg(source_reference)::text IS NULL OR e.source_reference = sqlc.narg(source_reference))
  AND (sqlc.narg(dimension)::text IS NULL AND sqlc.narg(json_path)::text IS NULL OR EXISTS (
      SELECT 1 FROM (
          SELECT x.payload FROM backbone.event_payloads x WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
          UNION ALL
          SELECT (@archived_payloads::text[])[array_position(@archived_sequences::bigint[], e.sequence)]::json
      ) p
      WHERE (sqlc.narg(dimension)::text IS NULL OR p.payload -> 'dimensions' ->> sqlc.narg(dimension) = sqlc.narg(dimension_value)::text)
        AND (sqlc.narg(json_path)::text IS NULL OR CASE
            WHEN sqlc.narg(part)::text IS NOT NULL THEN EXISTS (
                SELECT 1 FROM jsonb_path_query(p.payload::jsonb, sqlc.narg(json_path)::jsonpath) AS t(value)
                WHERE strpos(t.value #>> '{}' COLLATE "C", sqlc.narg(part) COLLATE "C") > 0)
            ELSE jsonb_path_exists(p.payload::jsonb, sqlc.narg(json_path)::jsonpath, @json_vars::jsonb, true)
                AND (sqlc.narg(equal_path)::text IS NULL OR NOT jsonb_path_exists(p.payload::jsonb, sqlc.narg(equal_path)::jsonpath, @json_vars::jsonb, true))
            END)
      LIMIT 1
  ));

-- name: GetSequenceAt :one
-- The last event recorded at or before a time, by bisection: recorded_at never goes
-- backwards and sequences have no gaps.
WITH RECURSIVE bisection (low, high) AS (
    SELECT 0::bigint, @head::bigint
    UNION ALL
    SELECT CASE WHEN m.before THEN m.middle ELSE b.low END,
           CASE WHEN m.before THEN b.high ELSE m.middle - 1 END
    FROM bisection b
    CROSS JOIN LATERAL (
        SELECT e.sequence AS middle, e.recorded_at <= @at::timestamptz AS before
        FROM backbone.events e
        WHERE e.partition_id = @partition_id AND e.sequence = (b.low + b.high + 1) / 2
        LIMIT 1
    ) m
    WHERE b.low < b.high
)
SELECT b.low FROM bisection b WHERE b.low >= b.high LIMIT 1;

-- name: ListLineage :many
-- From the event towards its root cause, inside one partition.
WITH RECURSIVE lineage (sequence, caused_by, caused_by_partition, depth) AS (
    SELECT e.sequence, e.caused_by, e.caused_by_partition, 1
    FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.id = @id
    UNION ALL
    SELECT c.sequence, c.caused_by, c.caused_by_partition, l.depth + 1
    FROM lineage l
    CROSS JOIN LATERAL (
        SELECT x.sequence, x.caused_by, x.caused_by_partition
        FROM backbone.events x
        WHERE x.partition_id = @partition_id AND x.id = l.caused_by AND x.sequence < l.sequence
        LIMIT 1
    ) c
    WHERE l.caused_by_partition IS NULL AND l.depth < @max_depth::int
)
SELECT l.sequence::bigint AS sequence, l.depth::int AS depth FROM lineage l ORDER BY l.depth;
