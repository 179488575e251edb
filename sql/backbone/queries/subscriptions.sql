-- Persistent subscriptions: definitions, cursors, messages. Everything about a
-- legal entity happens under the lock of its cursor.

-- name: InsertSubscription :execrows
INSERT INTO backbone.subscriptions (uid, tenant_id, id, subscriber_type, subscriber_id, definition, status, owner, revision, created_at, updated_at, failures)
VALUES (@uid, @tenant_id, @id, @subscriber_type, @subscriber_id, @definition, @status, @owner, @revision, @created_at, @updated_at, 0)
ON CONFLICT (tenant_id, id) DO NOTHING;

-- name: GetSubscription :one
SELECT s.* FROM backbone.subscriptions s WHERE s.tenant_id = @tenant_id AND s.id = @id;

-- name: ListSubscriptions :many
SELECT s.* FROM backbone.subscriptions s
WHERE @tenant_id::text = '' OR s.tenant_id = @tenant_id::text
ORDER BY s.tenant_id, s.id;

-- name: ChangeSubscription :execrows
UPDATE backbone.subscriptions
SET definition = @definition, status = @status, revision = @revision, updated_at = @updated_at,
    failures = @failures, failure_code = @failure_code, failed_at = @failed_at
WHERE uid = @uid AND revision = @expected_revision;

-- name: DeleteSubscription :exec
DELETE FROM backbone.subscriptions WHERE uid = @uid;

-- name: DeleteSubscriptionConsumers :exec
DELETE FROM backbone.subscription_consumers WHERE subscription = @subscription;

-- name: DeleteSubscriptionCursors :exec
DELETE FROM backbone.subscription_cursors WHERE subscription = @subscription AND partition_id = ANY (@partitions::integer[]);

-- name: DeleteSubscriptionMessages :exec
DELETE FROM backbone.subscription_messages WHERE subscription = @subscription AND partition_id = ANY (@partitions::integer[]);

-- name: FailSubscription :one
-- Counts failures in a row; an active one that has reached the threshold is parked,
-- which is a change that others must not overwrite.
UPDATE backbone.subscriptions
SET failures = failures + @failures::integer, failure_code = @failure_code, failed_at = @failed_at,
    revision = CASE WHEN status = 'active' AND @threshold::integer > 0 AND failures + @failures >= @threshold THEN revision + 1 ELSE revision END,
    status = CASE WHEN status = 'active' AND @threshold::integer > 0 AND failures + @failures >= @threshold THEN 'parked' ELSE status END
WHERE uid = @uid
RETURNING status, failures;

-- name: ClearSubscriptionFailures :exec
UPDATE backbone.subscriptions SET failures = 0 WHERE uid = @uid AND failures > 0;

-- name: InsertSubscriptionCursors :exec
INSERT INTO backbone.subscription_cursors (subscription, partition_id, read_through, checkpoint, pending, term, counts, updated_at)
SELECT @subscription, c.partition_id, c.read_through, c.read_through, 0, 1, '{}', @updated_at
FROM (SELECT unnest(@partitions::integer[]) AS partition_id, unnest(@read_through::bigint[]) AS read_through) c
ON CONFLICT (subscription, partition_id) DO NOTHING;

-- name: ListSubscriptionCursors :many
SELECT c.subscription, c.partition_id, c.read_through, c.checkpoint, c.pending, c.term, c.counts, c.updated_at
FROM backbone.subscription_cursors c
WHERE c.subscription = @subscription
ORDER BY c.partition_id;

-- name: ListAllSubscriptionCursors :many
SELECT c.subscription, c.partition_id, c.read_through, c.checkpoint, c.pending, c.term, c.counts, c.updated_at
FROM backbone.subscription_cursors c
ORDER BY c.subscription, c.partition_id;

-- name: CountSubscriptionMessages :many
SELECT m.subscription, m.partition_id,
    coalesce(min(m.sequence) FILTER (WHERE m.state <> 'parked'), 0)::bigint AS first,
    count(*) FILTER (WHERE m.state = 'leased') AS in_flight,
    count(*) FILTER (WHERE m.state IN ('waiting', 'retry')) AS waiting,
    count(*) FILTER (WHERE m.state = 'parked') AS parked,
    coalesce(min(m.due_at), 'epoch')::timestamptz AS next_due -- epoch: none
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = ANY (@partitions::integer[])
GROUP BY m.subscription, m.partition_id;

-- name: CountAllMessages :many
SELECT m.subscription, m.partition_id,
    coalesce(min(m.sequence) FILTER (WHERE m.state <> 'parked'), 0)::bigint AS first,
    count(*) FILTER (WHERE m.state = 'leased') AS in_flight,
    count(*) FILTER (WHERE m.state IN ('waiting', 'retry')) AS waiting,
    count(*) FILTER (WHERE m.state = 'parked') AS parked,
    coalesce(min(m.due_at), 'epoch')::timestamptz AS next_due -- epoch: none
FROM backbone.subscription_messages m
GROUP BY m.subscription, m.partition_id;

-- name: LockSubscriptionCursor :one
SELECT c.read_through, c.checkpoint, c.pending, c.term, c.counts, s.status, s.revision, s.tenant_id, s.id
FROM backbone.subscription_cursors c
JOIN backbone.subscriptions s ON s.uid = c.subscription
WHERE c.subscription = @subscription AND c.partition_id = @partition_id
FOR UPDATE OF c;

-- name: TryLockSubscriptionCursor :one
SELECT c.read_through, c.checkpoint, c.pending, c.term, c.counts, s.status, s.revision, s.tenant_id, s.id
FROM backbone.subscription_cursors c
JOIN backbone.subscriptions s ON s.uid = c.subscription
WHERE c.subscription = @subscription AND c.partition_id = @partition_id
FOR UPDATE OF c SKIP LOCKED;

-- name: SubscriptionCursorExists :one
SELECT EXISTS (
    SELECT FROM backbone.subscription_cursors c
    JOIN backbone.subscriptions s ON s.uid = c.subscription
    WHERE c.subscription = @subscription AND c.partition_id = @partition_id);

-- name: StoreClock :one
SELECT clock_timestamp()::timestamptz;

-- name: ListOpenMessages :many
SELECT m.sequence, m.event_id, m.order_key, m.state, m.consumer, m.attempts, m.due_at, m.handed_at, m.code, m.detail, m.changed_at
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = @partition_id AND m.state <> 'parked'
ORDER BY m.sequence;

-- name: ListParkedKeys :many
SELECT m.order_key, min(m.sequence)::bigint AS first
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = @partition_id AND m.state = 'parked'
GROUP BY m.order_key;

-- name: ListParkedMessages :many
-- By partition and sequence; without ids all, without code any.
SELECT m.partition_id, m.sequence, m.event_id, m.order_key, m.state, m.consumer, m.attempts, m.due_at, m.handed_at, m.code, m.detail, m.changed_at
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = ANY (@partitions::integer[]) AND m.state = 'parked'
  AND (m.partition_id, m.sequence) > (@from_partition::integer, @after::bigint)
  AND (cardinality(@event_ids::uuid[]) = 0 OR m.event_id = ANY (@event_ids::uuid[]))
  AND (@code::text = '' OR m.code = @code)
ORDER BY m.partition_id, m.sequence
LIMIT @page_size::integer;

-- name: CountParkedByCode :many
SELECT m.code, count(*) AS messages, min(m.changed_at)::timestamptz AS first, max(m.changed_at)::timestamptz AS last
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = ANY (@partitions::integer[]) AND m.state = 'parked'
GROUP BY m.code
ORDER BY count(*) DESC, m.code;

-- name: SaveMessages :exec
INSERT INTO backbone.subscription_messages (subscription, partition_id, sequence, event_id, order_key, state, consumer, attempts, due_at, handed_at, code, detail, changed_at)
SELECT @subscription, @partition_id, m.sequence, m.event_id, m.order_key, m.state, m.consumer, m.attempts,
    nullif(m.due_at, 'epoch'), nullif(m.handed_at, 'epoch'), m.code, m.detail, m.changed_at
FROM (
    SELECT unnest(@sequences::bigint[]) AS sequence, unnest(@event_ids::uuid[]) AS event_id, unnest(@order_keys::bytea[]) AS order_key, unnest(@states::text[]) AS state,
        unnest(@consumers::text[]) AS consumer, unnest(@attempts::integer[]) AS attempts, unnest(@due::timestamptz[]) AS due_at,
        unnest(@handed::timestamptz[]) AS handed_at, unnest(@codes::text[]) AS code, unnest(@details::text[]) AS detail, unnest(@changed::timestamptz[]) AS changed_at
) m
ON CONFLICT (subscription, partition_id, sequence) DO UPDATE
SET state = excluded.state, consumer = excluded.consumer, attempts = excluded.attempts, due_at = excluded.due_at,
    handed_at = excluded.handed_at, code = excluded.code, detail = excluded.detail, changed_at = excluded.changed_at;

-- name: DeleteMessages :exec
DELETE FROM backbone.subscription_messages
WHERE subscription = @subscription AND partition_id = @partition_id AND sequence = ANY (@sequences::bigint[]);

-- name: ClearMessages :exec
DELETE FROM backbone.subscription_messages
WHERE subscription = @subscription AND partition_id = @partition_id AND (state <> 'parked' OR sequence > @parked_after::bigint);

-- name: SaveCursor :exec
UPDATE backbone.subscription_cursors
SET read_through = @read_through, checkpoint = @checkpoint, pending = @pending, term = @term, counts = @counts, updated_at = @updated_at
WHERE subscription = @subscription AND partition_id = @partition_id;

-- name: ListDueMessages :many
-- For all subscriptions at once. Leases that have ended are looked for by themselves:
-- messages that nobody polls for stay due for ever, however many there are.
SELECT d.subscription, d.partition_id, bool_or(d.state = 'leased')::bool AS expired
FROM (
    (SELECT m.subscription, m.partition_id, m.state FROM backbone.subscription_messages m
    WHERE m.due_at <= @now::timestamptz AND m.state = 'leased'
    ORDER BY m.due_at
    LIMIT @scan::integer)
    UNION ALL
    (SELECT m.subscription, m.partition_id, m.state FROM backbone.subscription_messages m
    WHERE m.due_at <= @now::timestamptz AND m.state <> 'leased'
    ORDER BY m.due_at
    LIMIT @scan::integer)
) d
GROUP BY d.subscription, d.partition_id;

-- name: SaveConsumer :exec
INSERT INTO backbone.subscription_consumers (subscription, consumer, active_until)
VALUES (@subscription, @consumer, @active_until)
ON CONFLICT (subscription, consumer) DO UPDATE SET active_until = greatest(subscription_consumers.active_until, excluded.active_until);

-- name: ListConsumers :many
SELECT c.consumer, (c.active_until > @now::timestamptz)::bool AS active
FROM backbone.subscription_consumers c
WHERE c.subscription = @subscription
ORDER BY c.consumer;

-- name: DeleteGoneConsumers :exec
-- Whoever comes back at the same time keeps its row.
DELETE FROM backbone.subscription_consumers g
WHERE g.subscription = @subscription AND g.consumer IN (
    SELECT c.consumer FROM backbone.subscription_consumers c
    WHERE c.subscription = @subscription AND c.active_until <= @now::timestamptz
    FOR UPDATE SKIP LOCKED
);

-- name: InsertDecisions :exec
INSERT INTO backbone.subscription_decisions (partition_id, id, tenant_id, subscription, sequence, event_id, action, actor, reason, code, at)
SELECT @partition_id, d.id, @tenant_id, @subscription, d.sequence, d.event_id, @action, @actor, @reason, d.code, @at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@sequences::bigint[]) AS sequence, unnest(@event_ids::uuid[]) AS event_id, unnest(@codes::text[]) AS code) d;

-- name: ListDecisions :many
SELECT d.* FROM backbone.subscription_decisions d
WHERE d.tenant_id = @tenant_id AND d.subscription = @subscription AND d.partition_id = ANY (@partitions::integer[])
ORDER BY d.id DESC
LIMIT @page_size::integer;
