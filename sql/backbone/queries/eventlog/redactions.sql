-- Redactions, and the rows that verification reads apart from the events.

-- name: RequestRedaction :one
SELECT r.requested_at
FROM backbone.request_redaction(@partition_id::int, @id::uuid, @sequence::bigint, @pointers::text[], @reason::text, @person::text) r;

-- name: ApproveRedaction :one
SELECT r.requested_at, r.approved_at, r.sequence, r.pointers, r.reason, r.requested_by, r.approved_by
FROM backbone.approve_redaction(@partition_id::int, @id::uuid, @person::text) r;

-- name: RedactPayload :one
SELECT r.redacted_at, r.sequence, r.event_id, r.pointers, r.reason, r.requested_by, r.approved_by, r.old_payload_hash, r.new_payload_hash
FROM backbone.redact_payload(@partition_id::int, @sequence::bigint, @pointers::text[], @id::uuid, @salt::bytea, @payload::json,
    @old_hash::bytea, @new_hash::bytea) r;

-- name: ListRedactionRequests :many
SELECT r.id, r.requested_at, r.approved_at, r.sequence, r.pointers, r.reason, r.requested_by, r.approved_by
FROM backbone.redaction_requests r
WHERE r.partition_id = @partition_id
ORDER BY r.requested_at, r.id;

-- name: ListRedactions :many
SELECT r.id, r.redacted_at, r.sequence, r.event_id, r.pointers, r.reason, r.requested_by, r.approved_by, r.old_payload_hash, r.new_payload_hash
FROM backbone.pii_redactions r
WHERE r.partition_id = @partition_id
ORDER BY r.redacted_at, r.id;

-- name: ListEventPIISubjects :many
-- By sequence, an order that no index has: verification reads all rows in one query.
SELECT x.sequence, x.subject_id, x.class, x.paths
FROM backbone.event_pii_subjects x
WHERE x.partition_id = @partition_id AND x.sequence <= @until::bigint
ORDER BY x.sequence, x.class, x.subject_id;

-- name: CountEventsUntil :one
-- Counts rows of any sequence: reads by page return none below sequence 1.
SELECT count(*) FROM backbone.events e WHERE e.partition_id = @partition_id AND e.sequence <= @until::bigint;
