-- The global log: ranges of partitions and the tree over them.

-- name: ExtendGlobalLog :many
SELECT r.first_position::bigint AS first_position, r.partition_id::integer AS partition_id, r.first_sequence::bigint AS first_sequence, r.count::bigint AS count
FROM backbone.extend_global_log(@partitions::integer[], @most::bigint) AS r
ORDER BY r.first_position;

-- name: GlobalSize :one
SELECT coalesce((SELECT r.first_position + r.count FROM backbone.log_ranges r ORDER BY r.first_position DESC LIMIT 1), 0)::bigint;

-- The last sequence that the global log has of each partition before a position. The ranges of a partition
-- have the same order by sequence and by position.
-- name: GlobalEnds :many
SELECT h.partition_id, r.last_sequence::bigint AS last_sequence
FROM backbone.partition_heads h
CROSS JOIN (SELECT @before::bigint AS position) AS b
CROSS JOIN LATERAL (
    SELECT l.first_sequence + least(l.count, b.position - l.first_position) - 1 AS last_sequence FROM backbone.log_ranges l
    WHERE l.partition_id = h.partition_id AND l.first_position < b.position ORDER BY l.first_sequence DESC LIMIT 1
) AS r;

-- The ranges that have sequences of runs.
-- name: RangesOfRuns :many
SELECT DISTINCT l.first_position, l.partition_id, l.first_sequence, l.count
FROM (SELECT unnest(@partitions::integer[]) AS partition_id, unnest(@first_sequences::bigint[]) AS first_sequence, unnest(@last_sequences::bigint[]) AS last_sequence) AS run
JOIN backbone.log_ranges l ON l.partition_id = run.partition_id AND l.first_sequence <= run.last_sequence
    AND l.first_sequence >= coalesce((
        SELECT b.first_sequence FROM backbone.log_ranges b
        WHERE b.partition_id = run.partition_id AND b.first_sequence <= run.first_sequence ORDER BY b.first_sequence DESC LIMIT 1), 1);

-- name: GlobalRangesForward :many
SELECT r.first_position, r.partition_id, r.first_sequence, r.count
FROM backbone.log_ranges r
WHERE r.first_position >= coalesce((SELECT b.first_position FROM backbone.log_ranges b WHERE b.first_position <= @position ORDER BY b.first_position DESC LIMIT 1), 0)
  AND r.partition_id = ANY (@partitions::integer[]) AND r.first_position + r.count > @position
ORDER BY r.first_position
LIMIT @most;

-- name: GlobalRangesBackward :many
SELECT r.first_position, r.partition_id, r.first_sequence, r.count
FROM backbone.log_ranges r
WHERE r.first_position <= @position AND r.partition_id = ANY (@partitions::integer[])
ORDER BY r.first_position DESC
LIMIT @most;

-- name: EntryHashes :one
SELECT coalesce(backbone.entry_hashes(@from_position, @to_position), '')::bytea;

-- name: TileRoots :many
SELECT t.root FROM backbone.log_tiles t
WHERE t.level = @level AND t.index >= @from_index AND t.index < @to_index ORDER BY t.index;

-- name: AllGlobalRanges :many
SELECT r.first_position, r.partition_id, r.first_sequence, r.count
FROM backbone.log_ranges r
WHERE r.first_position >= @position
ORDER BY r.first_position
LIMIT @most;

-- name: Checksums :many
SELECT e.checksum FROM backbone.events e
WHERE e.partition_id = @partition_id AND e.sequence >= @first_sequence AND e.sequence < @end_sequence
ORDER BY e.sequence;

-- name: GlobalTiles :many
SELECT t.index, t.root, t.hashes FROM backbone.log_tiles t
WHERE t.level = @level AND t.index >= @first_index
ORDER BY t.index
LIMIT @most;

-- The hashes of entries in complete tiles.
-- name: TileHashes :many
SELECT t.index, t.hashes FROM backbone.log_tiles t
WHERE t.level = 0 AND t.index >= @from_index AND t.index < @to_index ORDER BY t.index;

-- name: RecordCheckpoint :one
SELECT backbone.record_checkpoint(@incarnation, @size, @root, @note)::boolean;

-- The newest checkpoint of the last incarnation.
-- name: NewestCheckpoint :many
SELECT c.incarnation, c.size, c.root, c.note FROM backbone.log_checkpoints c
ORDER BY c.incarnation DESC, c.size DESC LIMIT 1;

-- name: Checkpoints :many
SELECT c.incarnation, c.size, c.root, c.note FROM backbone.log_checkpoints c
WHERE (c.size, c.incarnation) > (@size::bigint, @incarnation::integer)
ORDER BY c.size, c.incarnation
LIMIT @most;
