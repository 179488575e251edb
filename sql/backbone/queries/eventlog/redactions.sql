-- Redactions, and the rows that verification reads apart from the events.

-- name: RequestRedaction :one
SELECT * FROM backbone.request_redaction(@partition_id::int, @id::uuid, @sequence::bigint, @pointers::text[], @reason::text,
    @person::text, @scope::bytea, @preview::json);

-- name: MoveRedaction :one
SELECT * FROM backbone.move_redaction(@partition_id::int, @id::uuid, @from_revision::int, @new_state::text, sqlc.narg('scope')::bytea,
    sqlc.narg('preview')::json, sqlc.narg('ended_by')::text, sqlc.narg('end_reason')::text, sqlc.narg('results')::json);

-- name: NoteRedactionFailure :one
SELECT backbone.note_redaction_failure(@partition_id::int, @id::uuid, @code::text)::int AS attempts;

-- name: ApproveRedaction :one
SELECT * FROM backbone.approve_redaction(@partition_id::int, @id::uuid, @person::text, @scope::bytea);

-- name: RedactPayload :one
SELECT r.redacted_at, r.sequence, r.event_id, r.pointers, r.reason, r.requested_by, r.approved_by, r.old_payload_hash, r.new_payload_hash
FROM backbone.redact_payload(@partition_id::int, @sequence::bigint, @pointers::text[], @id::uuid, @salt::bytea, @payload::json,
    @old_hash::bytea, @new_hash::bytea) r;

-- name: GetRedactionRequest :one
SELECT q.* FROM backbone.redaction_requests q WHERE q.tenant_id = @tenant_id AND q.id = @id::uuid;

-- name: ListRedactionRequests :many
-- No states: all.
SELECT q.* FROM backbone.redaction_requests q
WHERE q.tenant_id = @tenant_id AND (cardinality(@states::text[]) = 0 OR q.state = ANY (@states::text[]))
ORDER BY q.requested_at DESC, q.id DESC
LIMIT @page_size::int;

-- name: ListRedactionWork :many
-- The requests of all tenants that have a step to run, oldest first. The condition is that of
-- the index.
SELECT q.* FROM backbone.redaction_requests q
WHERE q.state IN ('approved', 'redacted', 'announced', 'rebuilt')
ORDER BY q.requested_at, q.id
LIMIT @page_size::int;

-- name: ListRedactions :many
-- With their requests, which are missing only if the record was forged.
SELECT r.id, r.redacted_at, r.sequence, r.event_id, r.pointers, r.reason, r.requested_by, r.approved_by, r.old_payload_hash, r.new_payload_hash,
    q.state, q.sequence AS request_sequence, q.event_id AS request_event_id, q.pointers AS request_pointers,
    q.requested_by AS requester, q.approved_by AS approver
FROM backbone.pii_redactions r
LEFT JOIN backbone.redaction_requests q ON q.partition_id = r.partition_id AND q.id = r.id
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

-- name: ListExtraPayloads :many
-- Payloads outside the sequences of the events. One statement sees payloads and events as of one
-- moment. Each side reads a range of the primary key, which is empty in a sound log; the order
-- makes the planner use it, as it cannot know that the range is.
(
    SELECT p.sequence FROM backbone.event_payloads p
    WHERE p.partition_id = @partition_id
      AND p.sequence > (SELECT coalesce(max(e.sequence), 0) FROM backbone.events e WHERE e.partition_id = @partition_id)
    ORDER BY p.sequence LIMIT @page_size::integer
)
UNION ALL
(
    SELECT p.sequence FROM backbone.event_payloads p
    WHERE p.partition_id = @partition_id AND p.sequence < 1
    ORDER BY p.sequence LIMIT @page_size::integer
);
