-- name: ListDescendants :many
-- From events towards their effects, inside one partition, level by level: a
-- recursive query computes one level before the next, so the limit leaves the deepest
-- events out. Stop, the sequence of the event where the walk began, ends cycles.
WITH RECURSIVE descendants (sequence, id, depth) AS (
    SELECT c.sequence, c.id, 1
    FROM (SELECT unnest(@causes::uuid[]) AS id, unnest(@cause_partitions::int[]) AS cause_partition) r
    CROSS JOIN LATERAL (
        SELECT x.sequence, x.id
        FROM backbone.events x
        WHERE x.partition_id = @partition_id AND x.caused_by = r.id AND COALESCE(x.caused_by_partition, @partition_id) = r.cause_partition
        LIMIT @page_size::int
    ) c
    UNION ALL
    SELECT c.sequence, c.id, d.depth + 1
    FROM descendants d
    CROSS JOIN LATERAL (
        SELECT x.sequence, x.id
        FROM backbone.events x
        WHERE x.partition_id = @partition_id AND x.caused_by = d.id AND COALESCE(x.caused_by_partition, @partition_id) = @partition_id
        LIMIT @page_size::int
    ) c
    WHERE d.depth < @max_depth::int AND d.sequence <> @stop::bigint
)
SELECT f.sequence::bigint AS sequence, f.depth::int AS depth
FROM (SELECT d.sequence, d.depth FROM descendants d LIMIT @page_size::int) f
ORDER BY f.depth, f.sequence;

-- name: ListKeySpans :many
-- How far the next entries of each key reach. The key that ends, or reaches farthest,
-- is the rarest from here on.
SELECT k.ordinal::int AS ordinal, s.entries::bigint AS entries, s.reach::bigint AS reach
FROM (SELECT unnest(@ordinals::int[]) AS ordinal, unnest(@keys::text[]) AS key) k
CROSS JOIN LATERAL (
    SELECT count(*) AS entries, COALESCE(max(y.sequence), 0) AS reach
    FROM (
        SELECT x.sequence
        FROM backbone.event_keys x
        WHERE x.partition_id = @partition_id AND x.key = k.key AND x.sequence > @after::bigint AND x.sequence <= @until::bigint
        ORDER BY x.sequence
        LIMIT @page_size::int
    ) y
) s;

-- name: ListKeyMatches :many
-- A page of a key's entries, and for each whether it has one of the types and all of
-- the other keys. No planner turns the innermost query into a join: a join would look
-- the sequence up in the whole partition, whatever the key.
SELECT k.sequence,
       ((cardinality(@types::text[]) = 0 OR k.type_no = ANY (ARRAY(SELECT t.number FROM backbone.event_types t WHERE t.type = ANY (@types::text[]))))
        AND NOT EXISTS (
            SELECT 1
            FROM unnest(@other_keys::text[]) AS o (key)
            WHERE (
                SELECT z.sequence
                FROM backbone.event_keys z
                WHERE z.partition_id = @partition_id AND z.key = o.key AND z.sequence = k.sequence
                LIMIT 1
            ) IS NULL
        ))::bool AS matches
FROM (
    SELECT x.sequence, x.type_no
    FROM backbone.event_keys x
    WHERE x.partition_id = @partition_id AND x.key = @key AND x.sequence > @after::bigint AND x.sequence <= @until::bigint
    ORDER BY x.sequence
    LIMIT @page_size::int
) k
ORDER BY k.sequence;

-- name: ListTypeMatches :many
-- The next events of any of the types.
SELECT s.sequence
FROM (SELECT unnest(@types::text[]) AS type) t
CROSS JOIN LATERAL (
    SELECT x.sequence
    FROM backbone.events x
    WHERE x.partition_id = @partition_id AND x.type = t.type AND x.sequence > @after::bigint AND x.sequence <= @until::bigint
    ORDER BY x.sequence
    LIMIT @page_size::int
) s
ORDER BY s.sequence
LIMIT @page_size::int;
