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

-- name: GetPrincipalByTokenHash :one
SELECT sqlc.embed(p) FROM backbone.principals p WHERE p.token_hash = @token_hash;

-- name: GetPrincipalByPerson :one
SELECT sqlc.embed(p) FROM backbone.principals p
WHERE p.tenant_id = @tenant_id AND p.person_id = @person_id
ORDER BY coalesce(p.expires_at <= @now::timestamptz, false), p.created_at, p.principal_id
LIMIT 1;

-- name: UpsertPrincipal :exec
INSERT INTO backbone.principals (
    tenant_id, principal_id, person_id, actor_type, display_name, role_label, roles, legal_entities,
    responsible_person, modules, contracted_types, pii_classes, trust_level,
    token_hash, development, expires_at, created_at
)
VALUES (
    @tenant_id, @principal_id, @person_id, @actor_type, @display_name, @role_label, @roles::text[], @legal_entities::text[],
    @responsible_person, @modules::text[], @contracted_types::text[], @pii_classes::text[], @trust_level,
    @token_hash, @development, @expires_at, @created_at
)
ON CONFLICT (tenant_id, principal_id)
DO UPDATE SET person_id = excluded.person_id, actor_type = excluded.actor_type, display_name = excluded.display_name,
              role_label = excluded.role_label, roles = excluded.roles, legal_entities = excluded.legal_entities,
              responsible_person = excluded.responsible_person, modules = excluded.modules,
              contracted_types = excluded.contracted_types, pii_classes = excluded.pii_classes, trust_level = excluded.trust_level,
              token_hash = excluded.token_hash, development = excluded.development,
              expires_at = excluded.expires_at, created_at = excluded.created_at;
