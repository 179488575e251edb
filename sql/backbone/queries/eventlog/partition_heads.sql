-- The end of a partition's chain. Every probe of a hot table is a LATERAL subquery with
-- LIMIT 1: without it PostgreSQL joins a fresh partition, which has no statistics yet,
-- instead of probing it.

-- name: GetPartitionHead :one
SELECT h.genesis,
       coalesce(e.sequence, 0)::bigint AS sequence,
       coalesce(e.recorded_at, to_timestamp(0))::timestamptz AS recorded_at,
       e.checksum
FROM backbone.partition_heads h
LEFT JOIN LATERAL (
    SELECT x.sequence, x.recorded_at, x.checksum
    FROM backbone.events x
    WHERE x.partition_id = @partition_id
    ORDER BY x.sequence DESC
    LIMIT 1
) e ON true
WHERE h.partition_id = @partition_id;

-- name: ListHeads :many
SELECT h.partition_id,
       h.genesis,
       coalesce(e.sequence, 0)::bigint AS sequence,
       coalesce(e.recorded_at, to_timestamp(0))::timestamptz AS recorded_at,
       e.checksum
FROM backbone.partition_heads h
LEFT JOIN LATERAL (
    SELECT x.sequence, x.recorded_at, x.checksum
    FROM backbone.events x
    WHERE x.partition_id = h.partition_id
    ORDER BY x.sequence DESC
    LIMIT 1
) e ON true
WHERE h.partition_id = ANY (@partition_ids::int[]);

-- name: ListRecordingTimes :many
-- When events of any partitions were recorded. Each event is one probe of the primary key,
-- in its order, so that small tables are not scanned either.
SELECT u.partition_id::int AS partition_id, u.sequence::bigint AS sequence, e.recorded_at
FROM (SELECT unnest(@partition_ids::int[]) AS partition_id, unnest(@sequences::bigint[]) AS sequence) u
CROSS JOIN LATERAL (
    SELECT x.sequence, x.recorded_at
    FROM backbone.events x
    WHERE x.partition_id = u.partition_id AND x.sequence >= u.sequence
    ORDER BY x.sequence
    LIMIT 1
) e
WHERE e.sequence = u.sequence;
