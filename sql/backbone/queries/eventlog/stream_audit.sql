-- The rows of streams that verification compares with their events.

-- name: ListStreamRows :many
-- The rows of the streams that have one.
SELECT r.stream_type, r.stream_id, r.version, r.first_sequence, r.last_sequence, r.lifecycle, r.readable_from, r.metadata, r.metadata_version
FROM (SELECT unnest(@stream_types::text[]) AS stream_type, unnest(@stream_ids::text[]) AS stream_id) k
CROSS JOIN LATERAL (
    SELECT x.stream_type, x.stream_id, x.version, x.first_sequence, x.last_sequence, x.lifecycle, x.readable_from, x.metadata, x.metadata_version
    FROM backbone.stream_versions x
    WHERE x.partition_id = @partition_id AND x.stream_type = k.stream_type AND x.stream_id = k.stream_id
    LIMIT 1
) r;

-- name: CountStreamRows :one
SELECT count(*) FROM backbone.stream_versions x WHERE x.partition_id = @partition_id AND x.first_sequence BETWEEN 1 AND @until::bigint;

-- name: ListStreamRowsWithEnds :many
-- The rows of a page that have a state or metadata or disagree with the stream's first and
-- last event, each with columns of those events and of the events that it refers to. A
-- separate row has the stream that begins the next page, if there is one. One statement
-- sees rows and events as of one moment. Of a stream with one event, as nearly all streams
-- of many logs are, it looks up one event.
SELECT q.stream_type, q.stream_id, q.version, q.first_sequence, q.last_sequence, q.lifecycle, q.readable_from, q.metadata, q.metadata_version,
       COALESCE(f.sequence, 0)::bigint AS first_event, COALESCE(q.last_event, 0)::bigint AS last_event,
       COALESCE(q.last_event_version, 0)::bigint AS last_event_version, COALESCE(q.last_event_type, '')::text AS last_event_type,
       COALESCE(m.type, '')::text AS metadata_event_type, COALESCE(b.type, '')::text AS readable_event_type, false AS next_page
FROM (
    SELECT r.*, l.sequence AS last_event, l.stream_version AS last_event_version, l.type AS last_event_type,
           r.version = l.stream_version AND r.last_sequence = l.sequence AND l.type <> ALL (@endings::text[])
           AND r.lifecycle IS NULL AND r.readable_from IS NULL AND r.metadata IS NULL AND r.metadata_version IS NULL AS plain
    FROM (
        SELECT x.stream_type, x.stream_id, x.version, x.first_sequence, x.last_sequence, x.lifecycle, x.readable_from, x.metadata, x.metadata_version
        FROM backbone.stream_versions x
        WHERE x.partition_id = @partition_id AND (x.stream_type, x.stream_id) >= (@from_type::text, @from_id::text)
        ORDER BY x.stream_type, x.stream_id
        LIMIT @page_size::int
    ) r
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.stream_version, e.type FROM backbone.events e
        WHERE e.partition_id = @partition_id AND e.stream_type = r.stream_type AND e.stream_id = r.stream_id
        ORDER BY e.stream_version DESC
        LIMIT 1
    ) l ON true
) q
LEFT JOIN LATERAL (
    SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.stream_type = q.stream_type AND e.stream_id = q.stream_id AND e.stream_version = 1
    LIMIT 1
) f ON true
LEFT JOIN LATERAL (
    SELECT e.type FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.stream_type = q.stream_type AND e.stream_id = q.stream_id AND e.stream_version = q.metadata_version
    LIMIT 1
) m ON true
LEFT JOIN LATERAL (
    SELECT e.type FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.stream_type = q.stream_type AND e.stream_id = q.stream_id AND e.stream_version = q.readable_from
    LIMIT 1
) b ON true
WHERE (q.plain AND q.last_event_version = 1 AND q.first_sequence = q.last_event) IS NOT TRUE
  AND (q.plain AND q.first_sequence = f.sequence) IS NOT TRUE
UNION ALL
SELECT n.stream_type, n.stream_id, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, '', '', '', true
FROM (
    SELECT x.stream_type, x.stream_id
    FROM backbone.stream_versions x
    WHERE x.partition_id = @partition_id AND (x.stream_type, x.stream_id) >= (@from_type::text, @from_id::text)
    ORDER BY x.stream_type, x.stream_id
    LIMIT 1 OFFSET @page_size::int
) n;
