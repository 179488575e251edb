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
SELECT e.partition_id::int AS partition_id, e.sequence::bigint AS sequence, e.recorded_at::timestamptz AS recorded_at,
       e.checksum::bytea AS checksum, e.database_time::timestamptz AS database_time
FROM backbone.last_events(@partition_ids::int[]) e;
