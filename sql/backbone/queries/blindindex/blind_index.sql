-- The index by which persons are found.

-- name: ListBlindIndexPositions :many
SELECT p.* FROM backbone.blind_index_positions p WHERE p.partition_id = ANY (@partition_ids::int[]);

-- name: InsertBlindIndexPosition :execrows
INSERT INTO backbone.blind_index_positions (partition_id, sequence, revision, key)
VALUES (@partition_id, 0, 1, @key)
ON CONFLICT DO NOTHING;

-- name: MoveBlindIndex :execrows
UPDATE backbone.blind_index_positions p
SET sequence = @sequence, revision = p.revision + 1, key = @key
WHERE p.partition_id = @partition_id AND p.revision = @revision;

-- name: LockBlindIndex :one
-- The lock waits for a change that is being committed, and moves on what is being computed.
UPDATE backbone.blind_index_positions p
SET revision = p.revision + 1
WHERE p.partition_id = @partition_id
RETURNING p.sequence;

-- name: DeleteBlindIndex :exec
DELETE FROM backbone.blind_index b WHERE b.partition_id = @partition_id;

-- name: InsertBlindIndex :exec
INSERT INTO backbone.blind_index (partition_id, kind, key_class, hash, subject_id, class, event_type, path)
SELECT @partition_id::int, unnest(@kinds::smallint[]), unnest(@key_classes::smallint[]), unnest(@hashes::bytea[]), unnest(@subject_ids::text[]),
    unnest(@classes::text[]), unnest(@event_types::text[]), unnest(@paths::text[])
ON CONFLICT DO NOTHING;

-- name: ForgetSubject :exec
DELETE FROM backbone.blind_index b
WHERE b.partition_id = @partition_id AND b.subject_id = @subject_id AND b.key_class = ANY (@key_classes::smallint[]);

-- name: CountBlindIndex :one
SELECT count(*) FROM backbone.blind_index b
WHERE b.partition_id = @partition_id AND b.subject_id = @subject_id AND b.key_class = ANY (@key_classes::smallint[]);

-- name: FindSubjects :many
-- Each log and hash is one range of the primary key. OFFSET 0 keeps the planner from reading a
-- whole kind, and filtering it, before statistics exist.
WITH ranges AS (
    SELECT l.partition_id, h.hash
    FROM (SELECT unnest(@partition_ids::int[]) AS partition_id) l CROSS JOIN (SELECT unnest(@hashes::bytea[]) AS hash) h
), found AS (
    SELECT x.subject_id
    FROM ranges r
    CROSS JOIN LATERAL (
        SELECT b.subject_id FROM backbone.blind_index b
        WHERE b.partition_id = r.partition_id AND b.kind = @kind AND b.hash = r.hash AND b.subject_id > @after::text
        OFFSET 0
    ) x
    GROUP BY x.subject_id
    HAVING count(DISTINCT r.hash) = cardinality(@hashes::bytea[])
    ORDER BY x.subject_id
    LIMIT @page_size::int)
SELECT DISTINCT x.subject_id, x.partition_id, x.event_type, x.path, x.class
FROM found f CROSS JOIN ranges r
CROSS JOIN LATERAL (
    SELECT b.subject_id, b.partition_id, b.event_type, b.path, b.class FROM backbone.blind_index b
    WHERE b.partition_id = r.partition_id AND b.kind = @kind AND b.hash = r.hash AND b.subject_id = f.subject_id
    OFFSET 0
) x
ORDER BY x.subject_id, x.partition_id, x.event_type, x.path, x.class;

-- name: ClearBlindIndex :exec
DELETE FROM backbone.blind_index;

-- name: ResetBlindIndexPositions :exec
-- No secret has the key of zeros, so the nodes begin again.
UPDATE backbone.blind_index_positions p SET sequence = 0, revision = p.revision + 1, key = '\x0000000000000000';
