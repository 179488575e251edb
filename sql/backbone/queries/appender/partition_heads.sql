-- The lock of a partition and the end of its chain. The head row is locked and never updated:
-- dead versions of it would pile up while any old snapshot is open (ADR 1).
--
-- Every probe of a hot table is a LATERAL subquery with LIMIT 1: without it PostgreSQL joins
-- a fresh partition, which has no statistics yet, instead of probing it.

-- name: LockPartitionHeads :many
SELECT h.partition_id, h.genesis
FROM backbone.partition_heads h
WHERE h.partition_id = ANY (@partition_ids::int[])
ORDER BY h.partition_id
FOR NO KEY UPDATE;

-- name: ListFreeHeads :many
-- The heads that no session holds at this moment. It runs in a transaction of its own, not
-- in that of an append: its locks end with it.
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
