-- What verification compares with the events of streams.

-- name: ListStreamRows :many
-- The rows of those of the streams that have one.
SELECT r.stream_type, r.stream_id, r.version, r.first_sequence, r.last_sequence, r.lifecycle, r.readable_from, r.metadata, r.metadata_version
FROM (SELECT unnest(@stream_types::text[]) AS stream_type, unnest(@stream_ids::text[]) AS stream_id) k
CROSS JOIN LATERAL (
    SELECT x.stream_type, x.stream_id, x.version, x.first_sequence, x.last_sequence, x.lifecycle, x.readable_from, x.metadata, x.metadata_version
    FROM backbone.stream_versions x
    WHERE x.partition_id = @partition_id AND x.stream_type = k.stream_type AND x.stream_id = k.stream_id
    LIMIT 1
) r;

-- name: ListStreamRowsWithEnds :many
-- A page of rows with what the events at the ends of their streams say, and those that
-- the rows refer to. One statement sees rows and events as of one moment.
SELECT r.stream_type, r.stream_id, r.version, r.first_sequence, r.last_sequence, r.lifecycle, r.readable_from, r.metadata, r.metadata_version,
       COALESCE(f.sequence, 0)::bigint AS first_event, COALESCE(l.sequence, 0)::bigint AS last_event,
       COALESCE(l.stream_version, 0)::bigint AS last_event_version, COALESCE(l.type, '')::text AS last_event_type,
       COALESCE(m.type, '')::text AS metadata_event_type, COALESCE(b.type, '')::text AS readable_event_type
FROM (
    SELECT x.stream_type, x.stream_id, x.version, x.first_sequence, x.last_sequence, x.lifecycle, x.readable_from, x.metadata, x.metadata_version
    FROM backbone.stream_versions x
    WHERE x.partition_id = @partition_id AND (x.stream_type, x.stream_id) > (@after_type::text, @after_id::text)
    ORDER BY x.stream_type, x.stream_id
    LIMIT @page_size::int
) r
LEFT JOIN LATERAL (
    SELECT e.sequence FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.stream_type = r.stream_type AND e.stream_id = r.stream_id
    ORDER BY e.stream_version
    LIMIT 1
) f ON true
LEFT JOIN LATERAL (
    SELECT e.sequence, e.stream_version, e.type FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.stream_type = r.stream_type AND e.stream_id = r.stream_id
    ORDER BY e.stream_version DESC
    LIMIT 1
) l ON true
LEFT JOIN LATERAL (
    SELECT e.type FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.stream_type = r.stream_type AND e.stream_id = r.stream_id AND e.stream_version = r.metadata_version
    LIMIT 1
) m ON true
LEFT JOIN LATERAL (
    SELECT e.type FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.stream_type = r.stream_type AND e.stream_id = r.stream_id AND e.stream_version = r.readable_from
    LIMIT 1
) b ON true
ORDER BY r.stream_type, r.stream_id;
