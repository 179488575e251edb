-- The lock of a partition and the end of its chain. Every probe of a hot table is
-- a LATERAL subquery with LIMIT 1: without it a fresh partition, which has no
-- statistics yet, is joined instead of probed.

-- name: LockPartitionHeads :many
SELECT h.partition_id, h.genesis
FROM backbone.partition_heads h
WHERE h.partition_id = ANY (@partition_ids::int[])
ORDER BY h.partition_id
FOR NO KEY UPDATE;

-- name: ListFreeHeads :many
-- Those that nobody holds at this moment. It is not one of an append's statements: the
-- locks end with it.
SELECT h.partition_id
FROM backbone.partition_heads h
WHERE h.partition_id = ANY (@partition_ids::int[])
ORDER BY h.partition_id
FOR NO KEY UPDATE SKIP LOCKED;

-- name: ListLastEvents :many
-- One row per partition, also for empty ones, and the database's clock.
SELECT p.partition_id::int AS partition_id,
       coalesce(e.sequence, 0)::bigint AS sequence,
       coalesce(e.recorded_at, to_timestamp(0))::timestamptz AS recorded_at,
       e.checksum,
       clock_timestamp()::timestamptz AS database_time
FROM (SELECT unnest(@partition_ids::int[]) AS partition_id) p
LEFT JOIN LATERAL (
    SELECT x.sequence, x.recorded_at, x.checksum
    FROM backbone.events x
    WHERE x.partition_id = p.partition_id
    ORDER BY x.sequence DESC
    LIMIT 1
) e ON true;

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

-- name: ListPartitionHeads :many
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
ORDER BY h.partition_id;

-- name: ListRecordingTimes :many
-- Of single events, in whichever partitions; each is one probe of the primary key, in its
-- order, so that small tables are not read from end to end either.
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
