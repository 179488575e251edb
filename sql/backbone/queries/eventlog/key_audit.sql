-- The rows of keys that verification compares with the events. They are read as a whole, in the
-- order in which the table has them: no index is by sequence.

-- name: ListEventKeys :many
SELECT k.sequence, k.type_no, k.key FROM backbone.event_keys k
WHERE k.partition_id = @partition_id AND (@everything::bool OR k.sequence BETWEEN @from_sequence::bigint AND @through::bigint);

-- name: ListClaimedKeys :many
SELECT k.sequence, k.event_id, k.event_type, k.key, coalesce(k.document, '')::text AS document FROM backbone.business_keys k
WHERE k.partition_id = @partition_id AND (@everything::bool OR k.sequence BETWEEN @from_sequence::bigint AND @through::bigint);

-- name: ListRequestKeys :many
SELECT k.key, k.fingerprint, k.intent_id, k.first_sequence, k.event_count, k.expires_at, k.bound FROM backbone.idempotency_keys k
WHERE k.partition_id = @partition_id;

-- name: ListNumberSeriesOf :many
SELECT n.series, n.next_number, n.unbound_through FROM backbone.number_series n
WHERE n.partition_id = @partition_id
ORDER BY n.series;

-- name: ListReaders :many
-- How far projections, publishers and subscriptions have read a partition.
SELECT (c.projection || ' version ' || c.version)::text AS reader, c.sequence FROM backbone.projection_checkpoints c
WHERE c.partition_id = @partition_id
UNION ALL
SELECT ('publisher ' || p.publisher)::text, p.published_through FROM backbone.publisher_cursors p
WHERE p.partition_id = @partition_id
UNION ALL
SELECT ('subscription ' || s.tenant_id || '/' || s.id)::text, c.read_through FROM backbone.subscription_cursors c
JOIN backbone.subscriptions s ON s.uid = c.subscription
WHERE c.partition_id = @partition_id
ORDER BY 1;

-- name: ListDeliveryDamage :many
-- Rows of deliveries that contradict each other or the log. Rows without a cursor are of a deletion
-- that was cut off, and nothing reads them.
SELECT s.id::text AS subscription, d.sequence, d.damage
FROM (
    SELECT c.subscription, c.read_through AS sequence, 'counts other dead letters than there are'::text AS damage
    FROM backbone.subscription_cursors c
    WHERE c.partition_id = @partition_id
      AND c.parked <> (SELECT count(*) FROM backbone.subscription_parked p WHERE p.subscription = c.subscription AND p.partition_id = c.partition_id)
    UNION ALL
    SELECT c.subscription, c.checkpoint, 'has a checkpoint after the events that it has read'
    FROM backbone.subscription_cursors c
    WHERE c.partition_id = @partition_id AND c.checkpoint > c.read_through
    UNION ALL
    SELECT m.subscription, m.sequence, 'keeps a message of an event that it has not read'
    FROM backbone.subscription_messages m
    JOIN backbone.subscription_cursors c ON c.subscription = m.subscription AND c.partition_id = m.partition_id
    WHERE m.partition_id = @partition_id AND m.sequence > c.read_through
    UNION ALL
    SELECT m.subscription, m.sequence, 'keeps a message that is no event'
    FROM backbone.subscription_cursors c
    CROSS JOIN LATERAL (
        SELECT x.subscription, x.sequence, x.event_id FROM backbone.subscription_messages x WHERE x.subscription = c.subscription AND x.partition_id = c.partition_id
        UNION ALL
        SELECT x.subscription, x.sequence, x.event_id FROM backbone.subscription_parked x WHERE x.subscription = c.subscription AND x.partition_id = c.partition_id
    ) m
    WHERE c.partition_id = @partition_id
      AND NOT EXISTS (SELECT FROM backbone.events e WHERE e.partition_id = @partition_id AND e.sequence = m.sequence AND e.id = m.event_id)
) d
JOIN backbone.subscriptions s ON s.uid = d.subscription
ORDER BY s.id, d.sequence
LIMIT @page_size::integer;

-- name: ListUnlistedPartitions :many
-- The partitions with a head, events or payloads that no legal entity has. Of the events and of
-- the payloads one is looked up for each partition.
WITH RECURSIVE log AS (
    SELECT min(e.partition_id) AS partition_id FROM backbone.events e
    UNION ALL
    SELECT (SELECT min(e.partition_id) FROM backbone.events e WHERE e.partition_id > log.partition_id) FROM log
    WHERE log.partition_id IS NOT NULL
), payloads AS (
    SELECT min(x.partition_id) AS partition_id FROM backbone.event_payloads x
    UNION ALL
    SELECT (SELECT min(x.partition_id) FROM backbone.event_payloads x WHERE x.partition_id > payloads.partition_id) FROM payloads
    WHERE payloads.partition_id IS NOT NULL
)
SELECT p.partition_id::int AS partition_id
FROM (
    SELECT log.partition_id FROM log WHERE log.partition_id IS NOT NULL
    UNION SELECT payloads.partition_id FROM payloads WHERE payloads.partition_id IS NOT NULL
    UNION SELECT h.partition_id FROM backbone.partition_heads h
) p
WHERE NOT EXISTS (SELECT FROM backbone.legal_entities l WHERE l.partition_id = p.partition_id)
ORDER BY p.partition_id;
