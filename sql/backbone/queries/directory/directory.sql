-- name: GetInstallation :one
SELECT i.log_name, i.deployment, i.created_at FROM backbone.installation i;

-- name: InsertInstallation :execrows
INSERT INTO backbone.installation (log_name, deployment, created_at)
VALUES (@log_name, @deployment, @created_at)
ON CONFLICT (singleton) DO NOTHING;

-- name: CreateLegalEntity :one
SELECT backbone.create_legal_entity(
    @partition_id::int, @tenant_id::text, @code::text, @name::text, @time_zone::text, @status::text,
    @created_at::timestamptz, @genesis::bytea, @physical_partitions::int
)::bool AS has_physical_partitions;

-- name: ListFormerPrincipals :many
SELECT sqlc.embed(p) FROM backbone.principals p
WHERE @tenant_id::text = '' OR p.tenant_id = @tenant_id
ORDER BY p.tenant_id, p.principal_id;
