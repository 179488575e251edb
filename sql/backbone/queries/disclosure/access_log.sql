-- The record of reads.

-- name: InsertAccesses :exec
INSERT INTO backbone.access_log (partition_id, id, person_id, principal_id, kind, operation, legal_entity, subject_id, class, value_count, reason, request_id, grant_id)
SELECT @partition_id::int, unnest(@ids::uuid[]), unnest(@person_ids::text[]), unnest(@principal_ids::text[]), unnest(@kinds::text[]), unnest(@operations::text[]),
    unnest(@legal_entities::text[]), unnest(@subject_ids::text[]), unnest(@classes::text[]), unnest(@value_counts::int[]), unnest(@reasons::text[]), unnest(@request_ids::text[]), unnest(@grant_ids::uuid[]);

-- name: SearchAccesses :many
SELECT a.*
FROM backbone.access_log a
WHERE a.partition_id = @partition_id
  AND (@class::text = '' OR a.class = @class)
  AND (@kind::text = '' OR a.kind = @kind)
  AND a.at >= @from_at AND a.at < @to_at
  AND (a.at, a.id) < (@before_at::timestamptz, @before_id::uuid)
ORDER BY a.at DESC, a.id DESC
LIMIT @page_size::int;

-- name: SearchAccessesOfPerson :many
SELECT a.*
FROM backbone.access_log a
WHERE a.partition_id = @partition_id
  AND a.person_id = @person_id
  AND (@class::text = '' OR a.class = @class)
  AND (@kind::text = '' OR a.kind = @kind)
  AND a.at >= @from_at AND a.at < @to_at
  AND (a.at, a.id) < (@before_at::timestamptz, @before_id::uuid)
ORDER BY a.at DESC, a.id DESC
LIMIT @page_size::int;

-- name: SearchAccessesOfSubject :many
-- Plans are generic, so only the second condition lets the planner use the partial index.
SELECT a.*
FROM backbone.access_log a
WHERE a.partition_id = @partition_id
  AND a.subject_id = @subject_id AND a.subject_id <> ''
  AND (@person_id::text = '' OR a.person_id = @person_id)
  AND (@class::text = '' OR a.class = @class)
  AND (@kind::text = '' OR a.kind = @kind)
  AND a.at >= @from_at AND a.at < @to_at
  AND (a.at, a.id) < (@before_at::timestamptz, @before_id::uuid)
ORDER BY a.at DESC, a.id DESC
LIMIT @page_size::int;

-- name: ListAccesses :many
SELECT a.*
FROM backbone.access_log a
WHERE a.partition_id = @partition_id AND a.at >= @from_at AND a.at < @to_at AND (a.at, a.id) > (@after_at::timestamptz, @after_id::uuid)
ORDER BY a.at, a.id
LIMIT @page_size::int;

-- name: OldestAccess :one
SELECT a.at FROM backbone.access_log a WHERE a.partition_id = @partition_id ORDER BY a.at LIMIT 1;

-- name: SettleAccessLog :one
SELECT backbone.settle_access_log()::timestamptz;

-- name: DeleteAccesses :one
SELECT backbone.delete_accesses(@partition_id::int, @before_at::timestamptz, @most::int)::int;
