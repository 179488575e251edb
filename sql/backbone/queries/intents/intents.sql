-- Reads of idempotency keys and intents, which are written together with events.

-- name: GetIdempotencyKey :one
SELECT k.fingerprint, k.intent_id, k.first_sequence, k.event_count
FROM backbone.idempotency_keys k
WHERE k.partition_id = @partition_id AND k.key = @key AND k.expires_at > @now::timestamptz;

-- name: DeleteExpiredIdempotencyKeys :execrows
DELETE FROM backbone.idempotency_keys k
WHERE k.partition_id = @partition_id AND k.expires_at <= @now::timestamptz;

-- name: GetIntent :one
SELECT sqlc.embed(i) FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.id = @id;

-- name: ListWaitingIntents :many
SELECT sqlc.embed(i) FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.status = 'pending_approval'
ORDER BY i.created_at, i.id
LIMIT @page_size::int;
