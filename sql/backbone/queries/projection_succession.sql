-- name: ShareActiveProjection :one
-- Whoever begins a version holds the one that is shown, so that the projection is not
-- ended meanwhile.
SELECT version FROM backbone.projections WHERE name = @name AND role = 'active' FOR SHARE;

-- name: NamedProjections :many
SELECT sqlc.embed(p)
FROM backbone.projections p
WHERE p.name = @name
ORDER BY p.version;
