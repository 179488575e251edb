-- name: ShareActiveProjection :one
-- Whoever begins a version holds the one that is shown, so that the projection is not
-- ended meanwhile.
SELECT version FROM backbone.projections WHERE name = @name AND role = 'active' FOR SHARE;

-- name: NamedProjections :many
SELECT sqlc.embed(p)
FROM backbone.projections p
WHERE p.name = @name
ORDER BY p.version;

-- name: LockProjectionTenant :exec
-- Whoever adds a version of one of a tenant's own projections holds this until the end of
-- the transaction, so that two do not both count what is there before either is.
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
