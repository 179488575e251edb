-- name: UpsertDeadLetter :exec
INSERT INTO backbone.dead_letters AS d (kind, name, version, partition_id, sequence, event_id, code, detail, attempts, first_failed_at, last_failed_at, status)
VALUES (@kind, @name, @version, @partition_id, @sequence, @event_id, @code, @detail, @attempts, @first_failed_at, @last_failed_at, @status)
ON CONFLICT (kind, name, version, partition_id, sequence) DO UPDATE
SET code = excluded.code, detail = excluded.detail, attempts = d.attempts + excluded.attempts, last_failed_at = excluded.last_failed_at,
    status = excluded.status, settled_at = NULL, settled_by = NULL, reason = NULL;

-- name: SettleDeadLetters :exec
-- Settles the waiting dead letters up to a sequence.
UPDATE backbone.dead_letters
SET status = @status, settled_at = @settled_at, settled_by = @settled_by, reason = @reason
WHERE kind = @kind AND name = @name AND version = @version AND partition_id = @partition_id
  AND sequence <= @through AND status = 'waiting';

-- name: ListDeadLetters :many
SELECT sqlc.embed(d)
FROM backbone.dead_letters d
WHERE (@kind::text = '' OR d.kind = @kind) AND (@name::text = '' OR d.name = @name)
  AND (cardinality(@partition_ids::int[]) = 0 OR d.partition_id = ANY (@partition_ids))
  AND (cardinality(@statuses::text[]) = 0 OR d.status = ANY (@statuses))
  AND (d.kind, d.name, d.version, d.partition_id, d.sequence)
      > (@after_kind::text, @after_name::text, @after_version::int, @after_partition_id::int, @after_sequence::bigint)
ORDER BY d.kind, d.name, d.version, d.partition_id, d.sequence
LIMIT @page_size;
