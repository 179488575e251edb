-- name: InsertCheckpoint :exec
INSERT INTO backbone.projection_checkpoints (projection, version, partition_id, sequence, status, updated_at)
VALUES (@projection, @version, @partition_id, 0, 'running', @updated_at)
ON CONFLICT (projection, version, partition_id) DO NOTHING;

-- name: LockCheckpoint :one
SELECT c.sequence, c.status, c.error, c.updated_at
FROM backbone.projection_checkpoints c
WHERE c.projection = @projection AND c.version = @version AND c.partition_id = @partition_id
FOR UPDATE;

-- name: UpdateCheckpoint :exec
UPDATE backbone.projection_checkpoints
SET sequence = @sequence, status = 'running', error = NULL, updated_at = @updated_at
WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: FaultCheckpoint :exec
INSERT INTO backbone.projection_checkpoints (projection, version, partition_id, sequence, status, error, updated_at)
VALUES (@projection, @version, @partition_id, 0, 'faulted', @error, @updated_at)
ON CONFLICT (projection, version, partition_id)
DO UPDATE SET status = 'faulted', error = excluded.error, updated_at = excluded.updated_at;

-- name: ListCheckpoints :many
SELECT c.partition_id, c.sequence, c.status, c.error, c.updated_at
FROM backbone.projection_checkpoints c
WHERE c.projection = @projection AND c.version = @version
ORDER BY c.partition_id;
