-- name: LoadProjectionRows :many
SELECT r.key, r.state, r.sequence
FROM backbone.projection_rows r
WHERE r.projection = @projection AND r.version = @version AND r.partition_id = @partition_id AND r.key = ANY(@keys::text[]);

-- name: UpsertProjectionRows :exec
INSERT INTO backbone.projection_rows (projection, version, partition_id, key, state, sequence)
SELECT @projection::text, @version::integer, @partition_id::integer, unnest(@keys::text[]), unnest(@states::text[])::json, unnest(@sequences::bigint[])
ON CONFLICT (projection, version, partition_id, key) DO UPDATE SET state = excluded.state, sequence = excluded.sequence;

-- name: DeleteProjectionRows :exec
DELETE FROM backbone.projection_rows
WHERE projection = @projection AND version = @version AND partition_id = @partition_id AND key = ANY(@keys::text[]);

-- name: ForgetProjectionRows :exec
DELETE FROM backbone.projection_rows
WHERE projection = @projection AND version = @version AND partition_id = @partition_id;

-- name: ListProjectionRows :many
SELECT r.key, r.state, r.sequence
FROM backbone.projection_rows r
WHERE r.projection = @projection AND r.version = @version AND r.partition_id = @partition_id
  AND r.key > @after AND r.key >= @at_least AND r.key <= @at_most
ORDER BY r.key
LIMIT @page_size;

-- name: AliveProjections :many
SELECT p.version FROM backbone.projections p WHERE p.name = @name AND p.role IN ('building', 'active', 'retained', 'saving', 'saved') ORDER BY p.version;
