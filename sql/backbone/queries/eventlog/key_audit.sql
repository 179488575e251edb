-- The rows of keys that verification compares with the events. They are read as a whole, in the
-- order in which the table has them: no index is by sequence.

-- name: ListEventKeys :many
SELECT k.sequence, k.type_no, k.key FROM backbone.event_keys k
WHERE k.partition_id = @partition_id AND (@everything::bool OR k.sequence BETWEEN @from_sequence::bigint AND @through::bigint);

-- name: ListClaimedKeys :many
SELECT k.sequence, k.event_id, k.event_type, k.key, coalesce(k.document, '')::text AS document FROM backbone.business_keys k
WHERE k.partition_id = @partition_id AND (@everything::bool OR k.sequence BETWEEN @from_sequence::bigint AND @through::bigint);
