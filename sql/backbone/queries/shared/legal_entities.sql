-- name: ListLegalEntities :many
SELECT e.partition_id, e.tenant_id, e.code, e.name, e.time_zone, e.status, e.created_at
FROM backbone.legal_entities e
WHERE @tenant_id::text = '' OR e.tenant_id = @tenant_id
ORDER BY e.tenant_id, e.code;
