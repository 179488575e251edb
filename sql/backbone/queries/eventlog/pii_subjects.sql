-- Which records hold sealed values of a person.

-- name: CountPersonalEvents :many
-- By event type and key class. The probe has an order, so that only the primary key can
-- serve it, whatever the planner knows about the table.
SELECT e.type, k.class, count(*) AS records, sum(cardinality(k.paths))::bigint AS fields, max(e.recorded_at)::timestamptz AS newest_at
FROM (
    SELECT x.sequence, x.class, x.paths
    FROM backbone.event_pii_subjects x
    WHERE x.partition_id = @partition_id AND x.subject_id = @subject_id
    OFFSET 0
) k
CROSS JOIN LATERAL (
    SELECT y.sequence, y.type, y.recorded_at
    FROM backbone.events y
    WHERE y.partition_id = @partition_id AND y.sequence >= k.sequence
    ORDER BY y.sequence
    LIMIT 1
) e
WHERE e.sequence = k.sequence
GROUP BY e.type, k.class
ORDER BY e.type, k.class;

-- name: CountPersonalIntents :many
SELECT i.type, k.class, count(*) AS records, sum(cardinality(k.paths))::bigint AS fields, max(i.created_at)::timestamptz AS newest_at
FROM (
    SELECT x.intent_id, x.class, x.paths
    FROM backbone.intent_pii_subjects x
    WHERE x.partition_id = @partition_id AND x.subject_id = @subject_id
    OFFSET 0
) k
CROSS JOIN LATERAL (
    SELECT y.type, y.created_at
    FROM backbone.intents y
    WHERE y.partition_id = @partition_id AND y.id = k.intent_id
    LIMIT 1
) i
GROUP BY i.type, k.class
ORDER BY i.type, k.class;

-- name: ListPersonalEvents :many
-- An event may hold values of several key classes.
SELECT DISTINCT x.sequence
FROM backbone.event_pii_subjects x
WHERE x.partition_id = @partition_id AND x.subject_id = @subject_id AND x.sequence > @after::bigint
ORDER BY x.sequence
LIMIT @page_size::int;

-- name: ListPersonalIntents :many
SELECT DISTINCT x.intent_id
FROM backbone.intent_pii_subjects x
WHERE x.partition_id = @partition_id AND x.subject_id = @subject_id AND x.intent_id > @after::uuid
ORDER BY x.intent_id
LIMIT @page_size::int;

-- A page of the keys that values of a partition are sealed with, with the first event of each; 0:
-- intents only. The primary keys lead to the persons after the last one of the page before. No
-- key has another class: the comparison with the events finds such a row.
-- name: ListPersonalKeys :many
SELECT r.subject_id, r.class, coalesce(min(r.sequence), 0)::bigint AS first
FROM (
    SELECT e.subject_id, e.class, e.sequence
    FROM backbone.event_pii_subjects e
    WHERE e.partition_id = @partition_id AND e.class BETWEEN 0 AND 255 AND e.subject_id >= @after_subject_id AND (e.subject_id, e.class) > (@after_subject_id, @after_class::smallint)
    UNION ALL
    SELECT i.subject_id, i.class, NULL
    FROM backbone.intent_pii_subjects i
    WHERE i.partition_id = @partition_id AND i.class BETWEEN 0 AND 255 AND i.subject_id >= @after_subject_id AND (i.subject_id, i.class) > (@after_subject_id, @after_class::smallint)
) AS r
GROUP BY r.subject_id, r.class
ORDER BY r.subject_id, r.class
LIMIT @page_size::int;
