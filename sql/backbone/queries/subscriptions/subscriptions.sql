-- Persistent subscriptions: definitions, cursors, messages. All changes in a legal
-- entity are made under the lock of its cursor.

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

-- name: DeleteSubscriptionParked :execrows
DELETE FROM backbone.subscription_parked WHERE subscription = @subscription AND partition_id = ANY (@partitions::integer[]);

-- name: ListParkedRemains :many
-- Parked messages of deleted subscriptions.
SELECT p.subscription, p.partition_id
FROM backbone.subscription_parked p
WHERE NOT EXISTS (SELECT FROM backbone.subscriptions s WHERE s.uid = p.subscription)
GROUP BY p.subscription, p.partition_id;

-- name: LockSubscriptionTenant :exec
-- Until it commits, a transaction that creates a subscription is the only one of its
-- tenant that counts them.
INSERT INTO backbone.subscription_tenants (tenant_id) VALUES (@tenant_id)
ON CONFLICT (tenant_id) DO UPDATE SET tenant_id = excluded.tenant_id;

-- name: CountSubscriptions :one
SELECT count(*) FROM backbone.subscriptions s WHERE s.tenant_id = @tenant_id;

-- name: FailSubscription :one
-- Counts failures in a row and parks an active subscription that has reached the
-- threshold, with a new revision, so that no concurrent change overwrites it.
UPDATE backbone.subscriptions s
SET failures = s.failures + @failures::integer, failure_code = @failure_code, failed_at = @failed_at,
    revision = CASE WHEN s.status = 'active' AND @threshold::integer > 0 AND s.failures + @failures >= @threshold THEN s.revision + 1 ELSE s.revision END,
    status = CASE WHEN s.status = 'active' AND @threshold::integer > 0 AND s.failures + @failures >= @threshold THEN 'parked' ELSE s.status END
FROM (SELECT x.uid, x.status FROM backbone.subscriptions x WHERE x.uid = @uid FOR NO KEY UPDATE) before
WHERE s.uid = before.uid
RETURNING (before.status = 'active' AND s.status = 'parked')::bool AS opened;

-- name: ClearSubscriptionFailures :exec
UPDATE backbone.subscriptions SET failures = 0 WHERE uid = @uid AND failures > 0;

-- name: InsertSubscriptionCursors :exec
-- term is of earlier releases, which count resets in it. It is not read.
INSERT INTO backbone.subscription_cursors (subscription, partition_id, read_through, checkpoint, pending, term, counts, updated_at)
SELECT @subscription, c.partition_id, c.read_through, c.read_through, 0, 1, '{}', @updated_at
FROM (SELECT unnest(@partitions::integer[]) AS partition_id, unnest(@read_through::bigint[]) AS read_through) c
ON CONFLICT (subscription, partition_id) DO NOTHING;

-- name: ListSubscriptionCursors :many
SELECT c.subscription, c.partition_id, c.read_through, c.checkpoint, c.pending, c.counts, c.updated_at, c.parked
FROM backbone.subscription_cursors c
WHERE c.subscription = @subscription
ORDER BY c.partition_id;

-- name: ListAllSubscriptionCursors :many
SELECT c.subscription, c.partition_id, c.read_through, c.checkpoint, c.pending, c.counts, c.updated_at, c.parked
FROM backbone.subscription_cursors c
ORDER BY c.subscription, c.partition_id;

-- name: ListSubscriptionStates :many
-- A state that changes with every change of the definition or of any cursor.
SELECT s.uid, s.revision, mod(coalesce(sum((extract(epoch FROM c.updated_at) * 1000000)::bigint), 0), 4611686018427387904)::bigint AS moved
FROM backbone.subscriptions s
LEFT JOIN backbone.subscription_cursors c ON c.subscription = s.uid
WHERE s.uid = ANY (@uids::uuid[])
GROUP BY s.uid, s.revision;

-- name: CountSubscriptionMessages :many
SELECT m.subscription, m.partition_id,
    min(m.sequence)::bigint AS first,
    count(*) FILTER (WHERE m.state = 'leased') AS in_flight,
    count(*) FILTER (WHERE m.state IN ('waiting', 'retry')) AS waiting,
    coalesce(min(m.due_at), 'epoch')::timestamptz AS next_due -- epoch: none
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = ANY (@partitions::integer[])
GROUP BY m.subscription, m.partition_id;

-- name: CountAllMessages :many
SELECT m.subscription, m.partition_id,
    min(m.sequence)::bigint AS first,
    count(*) FILTER (WHERE m.state = 'leased') AS in_flight,
    count(*) FILTER (WHERE m.state IN ('waiting', 'retry')) AS waiting,
    coalesce(min(m.due_at), 'epoch')::timestamptz AS next_due -- epoch: none
FROM backbone.subscription_messages m
GROUP BY m.subscription, m.partition_id;

-- name: LockSubscriptionCursor :one
SELECT c.read_through, c.checkpoint, c.pending, c.counts, c.parked, s.status, s.revision, s.tenant_id, s.id
FROM backbone.subscription_cursors c
JOIN backbone.subscriptions s ON s.uid = c.subscription
WHERE c.subscription = @subscription AND c.partition_id = @partition_id
FOR UPDATE OF c;

-- name: TryLockSubscriptionCursor :one
SELECT c.read_through, c.checkpoint, c.pending, c.counts, c.parked, s.status, s.revision, s.tenant_id, s.id
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
WHERE m.subscription = @subscription AND m.partition_id = @partition_id
ORDER BY m.sequence;

-- name: ListOpenMessagesOf :many
SELECT m.sequence, m.event_id, m.order_key, m.state, m.consumer, m.attempts, m.due_at, m.handed_at, m.code, m.detail, m.changed_at
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = @partition_id AND m.event_id = ANY (@event_ids::uuid[])
ORDER BY m.sequence;

-- name: ListMovingMessages :many
SELECT m.sequence, m.event_id, m.order_key, m.state, m.consumer, m.attempts, m.due_at, m.handed_at, m.code, m.detail, m.changed_at
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = @partition_id AND m.state <> 'waiting'
ORDER BY m.sequence;

-- name: ListWaitingMessages :many
-- Leaves out messages of the given keys from each key's sequence on; last_from is the
-- highest of these sequences.
SELECT m.sequence, m.event_id, m.order_key, m.state, m.consumer, m.attempts, m.due_at, m.handed_at, m.code, m.detail, m.changed_at
FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = @partition_id AND m.sequence > @after::bigint
  AND m.state = 'waiting'
  AND (m.order_key <> ALL (@but::bytea[])
    OR m.sequence < @last_from::bigint AND m.sequence < (@froms::bigint[])[array_position(@but::bytea[], m.order_key)])
ORDER BY m.sequence
LIMIT @page_size::integer;

-- name: CountWaitingMessages :one
SELECT count(*) FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = @partition_id AND m.state = 'waiting';

-- name: ListLowestMessages :many
SELECT m.sequence FROM backbone.subscription_messages m
WHERE m.subscription = @subscription AND m.partition_id = @partition_id
ORDER BY m.sequence
LIMIT @page_size::integer;

-- name: ListPartitionsOfMessages :many
-- Delivered messages precede waiting ones, so that a search in the order of sequences ends
-- early if there is one.
SELECT m.partition_id
FROM (SELECT unnest(@partitions::integer[]) AS partition_id) o
CROSS JOIN LATERAL (
    SELECT x.partition_id FROM backbone.subscription_messages x
    WHERE x.subscription = @subscription AND x.partition_id = o.partition_id AND x.event_id = ANY (@event_ids::uuid[])
    ORDER BY x.sequence
    LIMIT 1
) m
ORDER BY m.partition_id;

-- name: ListParkedKeys :many
-- The first parked message of each key that has one. The probe has an order and no
-- equality, so that only the index on keys can serve it, whatever the planner knows
-- about the table. The queries below do the same.
SELECT p.order_key, p.sequence AS first
FROM (SELECT unnest(@order_keys::bytea[]) AS wanted) k
CROSS JOIN LATERAL (
    SELECT x.order_key, x.sequence FROM backbone.subscription_parked x
    WHERE x.subscription = @subscription AND x.partition_id = @partition_id AND x.order_key >= k.wanted
    ORDER BY x.order_key, x.sequence
    LIMIT 1
) p
WHERE p.order_key = k.wanted;

-- name: ListAllParkedKeys :many
-- ListParkedKeys for subscriptions with fewer parked messages than wanted keys.
SELECT p.order_key, min(p.sequence)::bigint AS first
FROM backbone.subscription_parked p
WHERE p.subscription = @subscription AND p.partition_id = @partition_id
GROUP BY p.order_key;

-- name: ListParkedMessages :many
-- By partition and sequence, with any code if none is given. It reads at most one page of
-- each partition.
SELECT p.*
FROM (SELECT unnest(@partitions::integer[]) AS partition_id) o
CROSS JOIN LATERAL (
    SELECT x.* FROM backbone.subscription_parked x
    WHERE x.subscription = @subscription AND x.partition_id = o.partition_id
      AND x.sequence > CASE WHEN o.partition_id = @from_partition::integer THEN @after::bigint ELSE 0 END
      AND (@code::text = '' OR x.code = @code)
    ORDER BY x.sequence
    LIMIT @page_size::integer
) p
WHERE o.partition_id >= @from_partition
ORDER BY p.partition_id, p.sequence
LIMIT @page_size;

-- name: ListParkedMessagesOf :many
-- Those of the given events, by partition and sequence, with any code if none is given.
SELECT p.*
FROM (SELECT DISTINCT unnest(@event_ids::uuid[]) AS wanted) k
CROSS JOIN (SELECT unnest(@partitions::integer[]) AS partition_id) o
CROSS JOIN LATERAL (
    SELECT x.* FROM backbone.subscription_parked x
    WHERE x.subscription = @subscription AND x.partition_id = o.partition_id AND x.event_id >= k.wanted
    ORDER BY x.event_id
    LIMIT 1
) p
WHERE p.event_id = k.wanted
  AND (p.partition_id, p.sequence) > (@from_partition::integer, @after::bigint)
  AND (@code::text = '' OR p.code = @code)
ORDER BY p.partition_id, p.sequence
LIMIT @page_size::integer;

-- name: CountParkedByCode :many
SELECT p.code, count(*) AS messages, min(p.changed_at)::timestamptz AS first, max(p.changed_at)::timestamptz AS last
FROM backbone.subscription_parked p
WHERE p.subscription = @subscription AND p.partition_id = ANY (@partitions::integer[])
GROUP BY p.code
ORDER BY count(*) DESC, p.code;

-- name: SaveParked :one
-- Returns how many were not parked already: a node of the previous release resets a
-- subscription and leaves its parked messages, which it may deliver and park again.
WITH saved AS (
INSERT INTO backbone.subscription_parked (subscription, partition_id, sequence, event_id, order_key, consumer, attempts, handed_at, code, detail, changed_at)
SELECT @subscription, @partition_id, m.sequence, m.event_id, m.order_key, m.consumer, m.attempts, nullif(m.handed_at, 'epoch'), m.code, m.detail, m.changed_at
FROM (
    SELECT unnest(@sequences::bigint[]) AS sequence, unnest(@event_ids::uuid[]) AS event_id, unnest(@order_keys::bytea[]) AS order_key,
        unnest(@consumers::text[]) AS consumer, unnest(@attempts::integer[]) AS attempts, unnest(@handed::timestamptz[]) AS handed_at,
        unnest(@codes::text[]) AS code, unnest(@details::text[]) AS detail, unnest(@changed::timestamptz[]) AS changed_at
) m
ON CONFLICT (subscription, partition_id, sequence) DO UPDATE
SET consumer = excluded.consumer, attempts = excluded.attempts, handed_at = excluded.handed_at, code = excluded.code, detail = excluded.detail, changed_at = excluded.changed_at
RETURNING (xmax = 0) AS added
)
SELECT count(*) FILTER (WHERE s.added) FROM saved s;

-- name: DeleteParked :execrows
DELETE FROM backbone.subscription_parked
WHERE subscription = @subscription AND partition_id = @partition_id AND sequence = ANY (@sequences::bigint[]);

-- name: ClearParked :execrows
DELETE FROM backbone.subscription_parked
WHERE subscription = @subscription AND partition_id = @partition_id AND sequence > @parked_after::bigint;

-- name: CountParked :exec
UPDATE backbone.subscription_cursors SET parked = parked + @delta::bigint
WHERE subscription = @subscription AND partition_id = @partition_id;

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
WHERE subscription = @subscription AND partition_id = @partition_id;

-- name: SaveCursor :exec
UPDATE backbone.subscription_cursors
SET read_through = @read_through, checkpoint = @checkpoint, pending = @pending, counts = @counts, updated_at = @updated_at
WHERE subscription = @subscription AND partition_id = @partition_id;

-- name: ListDueMessages :many
-- For all subscriptions at once. It searches for ended leases separately, because
-- messages of subscriptions without polls stay due, however many there are.
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
-- A consumer that polls again at the same time keeps its row.
DELETE FROM backbone.subscription_consumers g
WHERE g.subscription = @subscription AND g.consumer IN (
    SELECT c.consumer FROM backbone.subscription_consumers c
    WHERE c.subscription = @subscription AND c.active_until <= @now::timestamptz
    FOR UPDATE SKIP LOCKED
);

-- name: ListFormerDecisions :many
SELECT d.* FROM backbone.subscription_decisions d
WHERE d.tenant_id = @tenant_id AND d.subscription = @subscription AND d.partition_id = ANY (@partitions::integer[])
ORDER BY d.id DESC
LIMIT @page_size::integer;

-- name: PageFormerDecisions :many
SELECT d.* FROM backbone.subscription_decisions d
WHERE d.tenant_id = @tenant_id AND (d.partition_id, d.subscription, d.id) > (@after_partition::integer, @after_subscription::text, @after_id::uuid)
ORDER BY d.partition_id, d.subscription, d.id
LIMIT @page_size::integer;
