-- name: GetWebhookEndpoint :one
SELECT sqlc.embed(w)
FROM backbone.webhook_endpoints w
WHERE w.subscription = @subscription;

-- name: ListWebhookEndpoints :many
SELECT sqlc.embed(w)
FROM backbone.webhook_endpoints w
WHERE @tenant_id::text = '' OR w.tenant_id = @tenant_id::text
ORDER BY w.tenant_id, w.subscription;

-- name: InsertWebhookEndpoint :execrows
INSERT INTO backbone.webhook_endpoints (subscription, tenant_id, url, secret_number, previous_until, disabled_at, disabled_code, header_names, headers, personal_reason, revision, created_at, updated_at)
VALUES (@subscription, @tenant_id, @url, @secret_number, @previous_until, @disabled_at, @disabled_code, @header_names::text[], @headers, @personal_reason, 1, @created_at, @updated_at)
ON CONFLICT (subscription) DO NOTHING;

-- name: UpdateWebhookEndpoint :execrows
UPDATE backbone.webhook_endpoints
SET url = @url, secret_number = @secret_number, previous_until = @previous_until, disabled_at = @disabled_at, disabled_code = @disabled_code,
    header_names = @header_names::text[], headers = @headers, personal_reason = @personal_reason,
    revision = revision + 1, updated_at = @updated_at
WHERE subscription = @subscription AND revision = @expected_revision;

-- name: DeleteWebhookEndpoint :exec
DELETE FROM backbone.webhook_endpoints WHERE subscription = @subscription;
