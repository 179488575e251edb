-- name: ShareActiveProjection :one
-- A transaction that adds a version locks the active one, so that the projection is not
-- ended at the same time.
SELECT version FROM backbone.projections WHERE name = @name AND role = 'active' FOR SHARE;

-- name: NamedProjections :many
SELECT sqlc.embed(p)
FROM backbone.projections p
WHERE p.name = @name
ORDER BY p.version;

-- name: LockProjectionTenant :exec
-- A transaction that adds a version of one of a tenant's custom projections holds this lock
-- until it ends, so that two transactions cannot both count the versions before either adds
-- its own.
SELECT pg_advisory_xact_lock(hashtextextended('backbone.projections/' || @tenant_id::text, 0));

-- name: CountedProjections :many
SELECT p.name, p.version, p.role
FROM backbone.projections p
WHERE starts_with(p.name, @prefix::text) AND p.role IN ('building', 'active');

-- name: ForgetDropped :execrows
DELETE FROM backbone.projections p
WHERE p.role = 'dropped' AND p.changed_at < @before
  AND EXISTS (SELECT FROM backbone.projections q WHERE q.name = p.name AND q.version > p.version)
  AND NOT EXISTS (SELECT FROM backbone.projection_checkpoints c WHERE c.projection = p.name AND c.version = p.version);
