-- name: LeaseTerm :one
SELECT l.term
FROM backbone.leases l
WHERE l.name = @name AND l.partition_id = @partition_id AND l.holder = @holder;

-- name: InsertCheckpoint :exec
INSERT INTO backbone.projection_checkpoints (projection, version, partition_id, sequence, status, updated_at, redactions)
VALUES (@projection, @version, @partition_id, 0, 'running', @updated_at, (SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = @partition_id))
ON CONFLICT (projection, version, partition_id) DO NOTHING;

-- name: LockCheckpoint :one
SELECT sqlc.embed(c)
FROM backbone.projection_checkpoints c
WHERE c.projection = @projection AND c.version = @version AND c.partition_id = @partition_id
FOR UPDATE;

-- name: UpdateCheckpoint :exec
UPDATE backbone.projection_checkpoints
SET sequence = @sequence, status = @status, error = @error, attempts = @attempts, updated_at = @updated_at,
    first_failed_at = @first_failed_at, last_failed_at = @last_failed_at, next_attempt_at = @next_attempt_at, last_event_at = @last_event_at,
    term = @term, processed = @processed, skipped = @skipped, failed = @failed
WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: ListCheckpoints :many
SELECT sqlc.embed(c)
FROM backbone.projection_checkpoints c
WHERE c.projection = @projection AND c.version = @version
ORDER BY c.partition_id;

-- name: InsertProjection :exec
INSERT INTO backbone.projections (name, version, code, role, scope, base, self_switching, status, settings, definition, revision, created_at, changed_at, changed_by)
VALUES (@name, @version, @code, @role, @scope, @base, @self_switching, @status, @settings, @definition, 1, @created_at, @created_at, @changed_by)
ON CONFLICT DO NOTHING;

-- name: ListProjections :many
-- Lists of the dropped versions only the latest one of a projection, so that its number is
-- not assigned again: every node runs this query each second.
SELECT sqlc.embed(p)
FROM backbone.projections p
WHERE p.role <> 'dropped' OR NOT EXISTS (SELECT FROM backbone.projections q WHERE q.name = p.name AND q.version > p.version)
ORDER BY p.name, p.version;

-- name: UpdateProjection :execrows
UPDATE backbone.projections
SET status = @status, settings = @settings, revision = revision + 1, changed_at = @changed_at, changed_by = @changed_by
WHERE name = @name AND version = @version AND revision = @revision;

-- name: TouchProjection :exec
-- Raises the revision after a change to a partition, so that nodes read its checkpoints again.
UPDATE backbone.projections
SET revision = revision + 1, changed_at = @changed_at, changed_by = @changed_by
WHERE name = @name AND version = @version;

-- name: FaultProjection :exec
UPDATE backbone.projections
SET status = 'faulted', revision = revision + 1, changed_at = @changed_at, changed_by = @changed_by
WHERE name = @name AND version = @version AND status IN ('running', 'paused');
