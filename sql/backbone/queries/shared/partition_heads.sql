-- The end of a partition's chain. Every probe of a hot table is a LATERAL subquery with
-- LIMIT 1: without it PostgreSQL joins a fresh partition, which has no statistics yet,
-- instead of probing it.

-- name: ListPartitionHeads :many
SELECT h.partition_id,
       h.genesis,
       coalesce(e.sequence, 0)::bigint AS sequence,
       coalesce(e.recorded_at, to_timestamp(0))::timestamptz AS recorded_at,
       e.checksum,
       EXISTS (SELECT FROM backbone.legal_entities l WHERE l.partition_id = h.partition_id AND l.code = '_ADMIN')::bool AS administrative
FROM backbone.partition_heads h
LEFT JOIN LATERAL (
    SELECT x.sequence, x.recorded_at, x.checksum
    FROM backbone.events x
    WHERE x.partition_id = h.partition_id
    ORDER BY x.sequence DESC
    LIMIT 1
) e ON true
ORDER BY h.partition_id;
