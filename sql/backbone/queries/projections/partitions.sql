-- Versions of one partition, and snapshots of projections.

-- name: RetainedInScope :many
SELECT version FROM backbone.projections WHERE name = @name AND role = 'retained' AND scope = @scope AND version <> @version;

-- name: InsertReplaced :one
-- Adds the next version, which takes the rows that a switch replaces in a partition.
INSERT INTO backbone.projections (name, version, code, role, scope, status, settings, definition, revision, created_at, changed_at, changed_by)
SELECT p.name, (SELECT max(q.version) + 1 FROM backbone.projections q WHERE q.name = p.name), p.code, 'retained', @scope, p.status, p.settings,
    p.definition, 1, @created_at, @created_at, @changed_by
FROM backbone.projections p
WHERE p.name = @name AND p.version = @version
ON CONFLICT DO NOTHING
RETURNING version;

-- name: TouchActive :execrows
-- Touches the active version only if the same handler or definition builds the other one.
UPDATE backbone.projections a
SET revision = a.revision + 1, changed_at = @changed_at, changed_by = @changed_by
FROM backbone.projections b
WHERE a.name = @name AND a.version = @version AND a.role = 'active'
  AND b.name = a.name AND b.version = @other AND (a.definition IS NULL AND b.definition IS NULL AND a.code = b.code OR a.definition::text = b.definition::text);

-- name: MoveLetters :exec
UPDATE backbone.dead_letters
SET version = @to_version
WHERE kind = 'projection' AND name = @name AND version = @version AND partition_id = @partition_id;

-- name: RestartRows :exec
-- The rows of a partition are computed from the beginning of the log.
UPDATE backbone.projection_checkpoints
SET generation = generation + 1, redactions = (SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = @partition_id)
WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: SetGeneration :exec
-- The rows of a partition were replaced by those of another version.
UPDATE backbone.projection_checkpoints
SET generation = @generation, redactions = @redactions
WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: RaiseGeneration :exec
-- Rows below the checkpoint were recomputed: a report in several pages notices it.
UPDATE backbone.projection_checkpoints
SET generation = generation + 1
WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: ListSnapshotParts :many
SELECT s.projection, s.version, s.partition_id, s.sequence, s.row_count, s.taken_at,
    s.redactions = (SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = s.partition_id) AS usable
FROM backbone.projection_snapshots s
WHERE @projection::text = '' OR s.projection = @projection
ORDER BY s.projection, s.version, s.partition_id;

-- name: PlanSnapshotParts :exec
-- A snapshot has one part for each partition that the projection has a checkpoint in.
INSERT INTO backbone.projection_snapshots (projection, version, partition_id, sequence, redactions, row_count)
SELECT p.name, p.version, c.partition_id, 0, 0, 0
FROM backbone.projections p
JOIN backbone.projection_checkpoints c ON c.projection = p.name AND c.version = @of_version AND (p.scope = 0 OR c.partition_id = p.scope)
WHERE p.name = @name AND p.version = @version AND p.role = 'saving'
ON CONFLICT DO NOTHING;

-- name: LockSnapshotPart :one
-- The node that copies a part locks it; other nodes skip it and copy another part.
SELECT s.sequence, s.redactions, s.row_count, s.taken_at, s.last_event_at, s.mac
FROM backbone.projection_snapshots s
WHERE s.projection = @projection AND s.version = @version AND s.partition_id = @partition_id
FOR UPDATE SKIP LOCKED;

-- name: FinishSnapshotPart :exec
UPDATE backbone.projection_snapshots
SET sequence = @sequence, redactions = @redactions, row_count = @row_count, taken_at = @taken_at, last_event_at = @last_event_at, mac = @mac
WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: DeleteSnapshotPart :execrows
DELETE FROM backbone.projection_snapshots WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: DeleteSnapshotParts :exec
DELETE FROM backbone.projection_snapshots WHERE projection = @projection AND version = @version;

-- name: GetShownCheckpoint :one
-- The checkpoint of the active version, if the same handler or definition builds the version.
SELECT c.version, c.sequence, c.last_event_at, c.redactions
FROM backbone.projection_checkpoints c
JOIN backbone.projections a ON a.name = c.projection AND a.version = c.version AND a.role = 'active'
JOIN backbone.projections b ON b.name = a.name AND b.version = @version
WHERE c.projection = @projection AND c.partition_id = @partition_id
  AND (a.definition IS NULL AND b.definition IS NULL AND a.code = b.code OR a.definition::text = b.definition::text);

-- name: OlderSnapshots :many
-- Snapshots with the scope of a version, without the newest ones.
SELECT s.version
FROM backbone.projections s
WHERE s.name = @name AND s.role = 'saved'
  AND s.scope = (SELECT p.scope FROM backbone.projections p WHERE p.name = @name AND p.version = @version)
ORDER BY s.version DESC
OFFSET @keep::int;

-- name: RestoreCheckpoint :execrows
-- The events that the rows were computed from count as processed.
INSERT INTO backbone.projection_checkpoints (projection, version, partition_id, sequence, status, updated_at, last_event_at, redactions, processed)
VALUES (@projection, @version, @partition_id, @sequence, 'running', @updated_at, @last_event_at, @redactions,
    CASE WHEN cardinality(@types::text[]) = 0 THEN @sequence::bigint
    ELSE (SELECT count(*) FROM backbone.events e WHERE e.partition_id = @partition_id AND e.type = ANY(@types) AND e.sequence <= @sequence) END)
ON CONFLICT (projection, version, partition_id) DO NOTHING;

-- name: ColumnsOf :many
SELECT a.attname::text FROM pg_catalog.pg_attribute a
WHERE a.attrelid = (quote_ident(@schema_name::text) || '.' || quote_ident(@table_name::text))::regclass
  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum;
