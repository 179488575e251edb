-- name: BeginPublishing :one
INSERT INTO backbone.publisher_cursors AS c (publisher, partition_id, published_through, term)
VALUES (@publisher, @partition_id, 0, @term)
ON CONFLICT (publisher, partition_id) DO UPDATE SET term = excluded.term
WHERE c.term <= excluded.term
RETURNING c.publisher, c.partition_id, c.published_through, c.term, c.moved_at, c.failures, c.last_error, c.failed_at;

-- name: LockPublisherCursor :one
SELECT c.published_through, c.term
FROM backbone.publisher_cursors c
WHERE c.publisher = @publisher AND c.partition_id = @partition_id
FOR UPDATE;

-- name: MovePublisherCursor :exec
UPDATE backbone.publisher_cursors
SET published_through = @published_through, moved_at = @moved_at, failures = 0, last_error = NULL, failed_at = NULL
WHERE publisher = @publisher AND partition_id = @partition_id;

-- name: NotePublishFailure :exec
UPDATE backbone.publisher_cursors
SET failures = failures + 1, last_error = @last_error, failed_at = @failed_at
WHERE publisher = @publisher AND partition_id = @partition_id;

-- name: ListPublisherCursors :many
SELECT c.publisher, c.partition_id, c.published_through, c.term, c.moved_at, c.failures, c.last_error, c.failed_at
FROM backbone.publisher_cursors c
WHERE @publisher::text = '' OR c.publisher = @publisher
ORDER BY c.publisher, c.partition_id;
