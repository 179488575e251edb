-- name: InsertWebhookAttempts :exec
-- Inserts nothing for a deleted endpoint. It locks the endpoint's row, so that a deletion
-- at the same time either waits and deletes these attempts too, or is waited for.
WITH endpoint AS (
    SELECT w.subscription FROM backbone.webhook_endpoints w WHERE w.subscription = @subscription FOR KEY SHARE
)
INSERT INTO backbone.webhook_attempts (subscription, event_id, attempted_at, next_at, sequence, partition_id, attempt, status, duration_ms, code)
SELECT w.subscription, a.event_id, a.attempted_at, NULLIF(a.next_at, '1970-01-01 00:00:00+00'), a.sequence, a.partition_id, a.attempt, a.status, a.duration_ms, a.code
FROM (
    SELECT unnest(@event_ids::uuid[]) AS event_id, unnest(@attempted_at::timestamptz[]) AS attempted_at, unnest(@next_at::timestamptz[]) AS next_at,
           unnest(@sequences::bigint[]) AS sequence, unnest(@partitions::int[]) AS partition_id, unnest(@attempts::int[]) AS attempt,
           unnest(@statuses::int[]) AS status, unnest(@durations::int[]) AS duration_ms, unnest(@codes::text[]) AS code
) AS a
CROSS JOIN endpoint w
ON CONFLICT (subscription, attempted_at, partition_id, sequence) DO NOTHING;

-- name: TrimWebhookAttempts :exec
DELETE FROM backbone.webhook_attempts a
WHERE a.subscription = @subscription AND a.attempted_at < (
    SELECT min(n.attempted_at) FROM (
        SELECT o.attempted_at FROM backbone.webhook_attempts o WHERE o.subscription = @subscription ORDER BY o.attempted_at DESC LIMIT @newest
    ) AS n
);

-- name: ListWebhookAttempts :many
SELECT sqlc.embed(a)
FROM backbone.webhook_attempts a
WHERE a.subscription = @subscription
ORDER BY a.attempted_at DESC, a.partition_id DESC, a.sequence DESC
LIMIT @newest;

-- name: DeleteWebhookAttempts :exec
DELETE FROM backbone.webhook_attempts WHERE subscription = @subscription;
