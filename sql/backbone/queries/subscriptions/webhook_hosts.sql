-- name: ListWebhookHosts :many
SELECT h.host, h.added_by, h.added_at
FROM backbone.webhook_hosts h
WHERE h.tenant_id = @tenant_id
ORDER BY h.host;

-- name: InsertWebhookHost :exec
INSERT INTO backbone.webhook_hosts (tenant_id, host, added_by, added_at)
VALUES (@tenant_id, @host, @added_by, @added_at)
ON CONFLICT (tenant_id, host) DO NOTHING;

-- name: DeleteWebhookHost :exec
DELETE FROM backbone.webhook_hosts WHERE tenant_id = @tenant_id AND host = @host;
