-- Reads of the log that are bounded by the bytes of the payloads: a page of payloads of a
-- megabyte each is short.

-- name: ListEventsWithin :many
-- ListEventsAfter, up to the last event whose payload still fits into the bytes together
-- with those before it; the first event is returned however large it is. The sizes of
-- payloads on disk, which are known without reading them, bound how many are measured.
SELECT sqlc.embed(e), p.salt, p.redactions, p.payload
FROM backbone.events e
LEFT JOIN LATERAL (
    SELECT x.salt, x.redactions, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = e.sequence
      AND (cardinality(@types::text[]) = 0 OR e.type = ANY (@types::text[]))
    LIMIT 1
) p ON true
WHERE e.partition_id = @partition_id AND e.sequence > @after::bigint
  AND e.sequence <= (
    SELECT coalesce(max(m.sequence) FILTER (WHERE m.total <= @bytes::bigint), min(m.sequence))
    FROM (
        SELECT d.sequence, sum(CASE WHEN d.payload IS NULL THEN 0 WHEN d.stored <= @bytes::bigint THEN octet_length(d.payload::text) ELSE 9223372036854775807 END)
            OVER (ORDER BY d.sequence ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT s.sequence, s.payload, sum(coalesce(pg_column_size(s.payload), 0)) OVER (ORDER BY s.sequence ROWS UNBOUNDED PRECEDING) AS stored
            FROM (
                SELECT y.sequence, q.payload
                FROM backbone.events y
                LEFT JOIN LATERAL (
                    SELECT z.payload FROM backbone.event_payloads z
                    WHERE z.partition_id = @partition_id AND z.sequence = y.sequence
                      AND (cardinality(@types::text[]) = 0 OR y.type = ANY (@types::text[]))
                    LIMIT 1
                ) q ON true
                WHERE y.partition_id = @partition_id AND y.sequence > @after
                ORDER BY y.sequence
                LIMIT @page_size::int
            ) s
        ) d
    ) m
  )
ORDER BY e.sequence
LIMIT @page_size;

-- name: ListPayloadSizes :many
SELECT p.sequence, octet_length(p.payload::text)::bigint AS bytes
FROM (SELECT unnest(@sequences::bigint[]) AS wanted) k
CROSS JOIN LATERAL (
    SELECT x.sequence, x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = k.wanted
    LIMIT 1
) p;
