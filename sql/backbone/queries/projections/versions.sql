-- name: ActiveProjection :one
SELECT version FROM backbone.projections WHERE name = @name AND role = 'active';

-- name: ShareProjection :one
-- A transaction that begins with a partition locks the version, so that it is not dropped
-- before the transaction ends.
SELECT role FROM backbone.projections WHERE name = @name AND version = @version FOR SHARE;

-- name: LockVersions :many
-- Locks the checkpoints of several versions: their read models do not change until the
-- transaction ends.
SELECT sqlc.embed(c)
FROM backbone.projection_checkpoints c
WHERE c.projection = @projection AND c.version = ANY(@versions::integer[]) AND (@partition_id::integer = 0 OR c.partition_id = @partition_id)
ORDER BY c.partition_id, c.version
FOR UPDATE;

-- name: ReadVersions :many
SELECT c.version, c.sequence
FROM backbone.projection_checkpoints c
WHERE c.projection = @projection AND c.version = ANY(@versions::integer[]) AND c.partition_id = @partition_id;

-- name: ChangeRole :execrows
-- A version that becomes active before its base snapshot is copied starts at once, since no
-- node copies the rest of the snapshot.
UPDATE backbone.projections
SET role = @role, status = CASE WHEN @role = 'active' AND base <> 0 AND status = 'created' THEN 'running' ELSE status END, self_switching = false, revision = revision + 1, changed_at = @changed_at, changed_by = @changed_by
WHERE name = @name AND version = @version AND role = ANY(@roles::text[]);

-- name: RetainedProjection :many
SELECT version FROM backbone.projections WHERE name = @name AND role = 'retained' AND version <> @version;

-- name: DeleteCheckpoints :exec
DELETE FROM backbone.projection_checkpoints WHERE projection = @projection AND version = @version;

-- name: DiscardVersionLetters :exec
UPDATE backbone.dead_letters
SET status = 'discarded', settled_at = @settled_at, settled_by = @settled_by
WHERE kind = 'projection' AND name = @name AND version = @version AND status = 'waiting';

-- name: ListPartitions :many
SELECT partition_id FROM backbone.partition_heads ORDER BY partition_id;
