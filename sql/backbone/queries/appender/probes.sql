-- First round trip of an append group, after the head locks: it reads the rows that the
-- expectations of the group's requests are checked against. Parameters are parallel arrays
-- without duplicates; names that do not exist give no row.

-- name: ListStreamVersions :many
-- lifecycle and access list are NULL, except for streams whose events set them. All events
-- after content_version are changes of metadata.
SELECT k.ordinal::int AS ordinal, s.version, s.content_version, s.last_sequence, s.lifecycle, s.acl
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@stream_types::text[]) AS stream_type,
             unnest(@stream_ids::text[]) AS stream_id) k
CROSS JOIN LATERAL (
    SELECT x.version, x.last_sequence, x.lifecycle, (x.metadata -> 'acl')::text AS acl,
        CASE WHEN x.metadata_version = x.version THEN backbone.content_version(x.partition_id, x.stream_type, x.stream_id, x.version)
            ELSE x.version END::bigint AS content_version
    FROM backbone.stream_versions x
    WHERE x.partition_id = k.partition_id AND x.stream_type = k.stream_type AND x.stream_id = k.stream_id
    LIMIT 1
) s;

-- name: ListIdempotencyKeys :many
SELECT k.ordinal::int AS ordinal, i.fingerprint, i.intent_id, i.first_sequence, i.event_count, i.expires_at
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@keys::text[]) AS key) k
CROSS JOIN LATERAL (
    SELECT x.fingerprint, x.intent_id, x.first_sequence, x.event_count, x.expires_at
    FROM backbone.idempotency_keys x
    WHERE x.partition_id = k.partition_id AND x.key = k.key
    LIMIT 1
) i;

-- name: ListBusinessKeys :many
SELECT k.ordinal::int AS ordinal, b.sequence, b.event_id, b.document
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@event_types::text[]) AS event_type,
             unnest(@keys::text[]) AS key) k
CROSS JOIN LATERAL (
    SELECT x.sequence, x.event_id, x.document
    FROM backbone.business_keys x
    WHERE x.partition_id = k.partition_id AND x.event_type = k.event_type AND x.key = k.key
    LIMIT 1
) b;

-- name: ListKeyVersions :many
-- The version of an entity: the sequence of the last event that references it.
SELECT k.ordinal::int AS ordinal, e.sequence
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@keys::text[]) AS key) k
CROSS JOIN LATERAL (
    SELECT x.sequence
    FROM backbone.event_keys x
    WHERE x.partition_id = k.partition_id AND x.key = k.key
    ORDER BY x.sequence DESC
    LIMIT 1
) e;

-- name: ListKeyConditionHits :many
-- The first event after a sequence that carries the driving key, all other keys
-- and one of the types; or, with position beyond the scan limit, no match: the scan of this
-- key decides nothing, and if no other key's scan does, the condition is too old. The limit
-- is concurrency.MaxConditionScan; a constant lets the planner see it. Arrays inside the
-- arrays are array literals. No planner turns the innermost query into a join: a join would
-- look each sequence up in the whole partition, whatever the key, while the append holds the
-- head's lock.
SELECT k.ordinal::int AS ordinal, hit.sequence::bigint AS sequence, hit.position::bigint AS position
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@after::bigint[]) AS after,
             unnest(@keys::text[]) AS key,
             unnest(@other_keys::text[])::text[] AS other_keys,
             unnest(@types::text[])::text[] AS types) k
CROSS JOIN LATERAL (
    SELECT s.sequence, s.position
    FROM (
        SELECT x.sequence, x.type_no, row_number() OVER (ORDER BY x.sequence) AS position
        FROM (
            SELECT y.sequence, y.type_no
            FROM backbone.event_keys y
            WHERE y.partition_id = k.partition_id AND y.key = k.key AND y.sequence > k.after
            ORDER BY y.sequence
            LIMIT 10001
        ) x
    ) s
    WHERE s.position > 10000
       OR ((cardinality(k.types) = 0
            -- Read once per condition, when its first key is found.
            OR s.type_no = ANY (ARRAY(SELECT t.number FROM backbone.event_types t WHERE t.type = ANY (k.types))))
           AND NOT EXISTS (
               SELECT 1
               FROM unnest(k.other_keys) AS o (key)
               WHERE (
                   SELECT z.sequence
                   FROM backbone.event_keys z
                   WHERE z.partition_id = k.partition_id AND z.key = o.key AND z.sequence = s.sequence
                   LIMIT 1
               ) IS NULL
           ))
    ORDER BY s.sequence
    LIMIT 1
) hit;

-- name: ListTypeConditionHits :many
-- The first event of a type after a sequence.
SELECT k.ordinal::int AS ordinal, e.sequence
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@after::bigint[]) AS after,
             unnest(@types::text[]) AS type) k
CROSS JOIN LATERAL (
    SELECT x.sequence
    FROM backbone.events x
    WHERE x.partition_id = k.partition_id AND x.type = k.type AND x.sequence > k.after
    ORDER BY x.sequence
    LIMIT 1
) e;

-- name: ListNumberSeries :many
SELECT k.ordinal::int AS ordinal, n.next_number
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@series::text[]) AS series) k
CROSS JOIN LATERAL (
    SELECT x.next_number
    FROM backbone.number_series x
    WHERE x.partition_id = k.partition_id AND x.series = k.series
    LIMIT 1
) n;

-- name: ListIntentRevisions :many
SELECT k.ordinal::int AS ordinal, i.revision
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@ids::uuid[]) AS id) k
CROSS JOIN LATERAL (
    SELECT x.revision
    FROM backbone.intents x
    WHERE x.partition_id = k.partition_id AND x.id = k.id
    LIMIT 1
) i;

-- name: ListEventIDs :many
-- The ids of stored events that a refusal names as its holder. The order makes the primary
-- key the only index that can serve the query.
SELECT k.ordinal::int AS ordinal, e.id
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@sequences::bigint[]) AS sequence) k
CROSS JOIN LATERAL (
    SELECT x.id
    FROM backbone.events x
    WHERE x.partition_id = k.partition_id AND x.sequence >= k.sequence
    ORDER BY x.sequence
    LIMIT 1
) e;

-- name: ListEventSequences :many
-- The sequences of those events of a group that were written, after a commit with an
-- unknown outcome.
SELECT k.ordinal::int AS ordinal, e.sequence
FROM (SELECT unnest(@ordinals::int[]) AS ordinal,
             unnest(@partition_ids::int[]) AS partition_id,
             unnest(@ids::uuid[]) AS id) k
CROSS JOIN LATERAL (
    SELECT x.sequence
    FROM backbone.events x
    WHERE x.partition_id = k.partition_id AND x.id = k.id
    LIMIT 1
) e;
