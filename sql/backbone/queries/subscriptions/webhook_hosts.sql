-- name: ListWebhookHosts :many
-- What an earlier release stored. The administrative log has adopted it.
SELECT h.host, h.added_by, h.added_at
FROM backbone.webhook_hosts h
WHERE h.tenant_id = @tenant_id
ORDER BY h.host;
