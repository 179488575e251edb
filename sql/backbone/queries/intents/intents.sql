-- Reads of idempotency keys and intents, which are written together with events.

-- name: GetIdempotencyKey :one
SELECT k.fingerprint, k.intent_id, k.first_sequence, k.event_count
FROM backbone.idempotency_keys k
WHERE k.partition_id = @partition_id AND k.key = @key AND k.expires_at > @now::timestamptz;

-- name: DeleteExpiredIdempotencyKeys :execrows
DELETE FROM backbone.idempotency_keys k
WHERE k.partition_id = @partition_id AND k.expires_at <= @now::timestamptz;

-- name: GetIntent :one
SELECT sqlc.embed(i) FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.id = @id;

-- name: HasRedactions :one
SELECT EXISTS (SELECT FROM backbone.pii_redactions r WHERE r.partition_id = @partition_id AND r.sequence BETWEEN @first_sequence AND @last_sequence);

-- name: ListWaitingIntents :many
SELECT sqlc.embed(i) FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.status = 'pending_approval'
ORDER BY i.created_at, i.id
LIMIT @page_size::int;

-- name: ListIntentSequences :many
-- The last events of the intents that have a row.
SELECT i.id, i.last_sequence FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.id = ANY (@ids::uuid[]);

-- name: ListBoundIntents :many
-- A page of rows by id, each with the event that binds it. One statement sees both as of one
-- moment. The probes are LATERAL subqueries with LIMIT 1: without it PostgreSQL, before its first
-- statistics, compares every row of the page with every event of the partition.
SELECT sqlc.embed(i), e.intent_id AS event_intent_id, coalesce(e.type, '')::text AS event_type, e.payload_hash AS event_payload_hash,
    p.payload AS event_payload
FROM backbone.intents i
LEFT JOIN LATERAL (
    SELECT x.intent_id, x.type, x.payload_hash FROM backbone.events x
    WHERE x.partition_id = @partition_id AND x.sequence = i.last_sequence
    LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT x.payload FROM backbone.event_payloads x
    WHERE x.partition_id = @partition_id AND x.sequence = i.last_sequence
    LIMIT 1
) p ON true
WHERE i.partition_id = @partition_id AND i.id > @after_id::uuid
ORDER BY i.id
LIMIT @page_size::int;

-- name: ListIntents :many
-- Rows in the order of their ids, without their payloads and rule traces.
SELECT i.created_at, i.updated_at, i.first_sequence, i.partition_id, i.event_count, i.revision, i.effective_date, i.id, i.caused_by,
    i.legal_entity, i.type, i.status, i.actor_type, i.actor_id, i.actor_name, i.actor_details, i.person_id, i.roles, i.correlation_id,
    i.source_system, i.source_channel, i.source_reference, i.plan_hash, i.need, i.approvals, '[]'::json AS rules, i.refusal, '{}'::json AS
    payload, i.last_sequence, i.documents, i.caused_by_partition
FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.id > @after_id::uuid AND i.id < @before_id::uuid
ORDER BY i.id
LIMIT @page_size::int;

-- name: ListIntentsBackward :many
SELECT i.created_at, i.updated_at, i.first_sequence, i.partition_id, i.event_count, i.revision, i.effective_date, i.id, i.caused_by,
    i.legal_entity, i.type, i.status, i.actor_type, i.actor_id, i.actor_name, i.actor_details, i.person_id, i.roles, i.correlation_id,
    i.source_system, i.source_channel, i.source_reference, i.plan_hash, i.need, i.approvals, '[]'::json AS rules, i.refusal, '{}'::json AS
    payload, i.last_sequence, i.documents, i.caused_by_partition
FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.id > @after_id::uuid AND i.id < @before_id::uuid
ORDER BY i.id DESC
LIMIT @page_size::int;

-- name: ListIntentsOfStatus :many
-- As ListIntents, of one status other than executed.
SELECT i.created_at, i.updated_at, i.first_sequence, i.partition_id, i.event_count, i.revision, i.effective_date, i.id, i.caused_by,
    i.legal_entity, i.type, i.status, i.actor_type, i.actor_id, i.actor_name, i.actor_details, i.person_id, i.roles, i.correlation_id,
    i.source_system, i.source_channel, i.source_reference, i.plan_hash, i.need, i.approvals, '[]'::json AS rules, i.refusal, '{}'::json AS
    payload, i.last_sequence, i.documents, i.caused_by_partition
FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.status = @status AND i.status <> 'executed' AND i.id > @after_id::uuid AND i.id < @before_id::uuid
ORDER BY i.id
LIMIT @page_size::int;

-- name: ListIntentsOfStatusBackward :many
SELECT i.created_at, i.updated_at, i.first_sequence, i.partition_id, i.event_count, i.revision, i.effective_date, i.id, i.caused_by,
    i.legal_entity, i.type, i.status, i.actor_type, i.actor_id, i.actor_name, i.actor_details, i.person_id, i.roles, i.correlation_id,
    i.source_system, i.source_channel, i.source_reference, i.plan_hash, i.need, i.approvals, '[]'::json AS rules, i.refusal, '{}'::json AS
    payload, i.last_sequence, i.documents, i.caused_by_partition
FROM backbone.intents i
WHERE i.partition_id = @partition_id AND i.status = @status AND i.status <> 'executed' AND i.id > @after_id::uuid AND i.id < @before_id::uuid
ORDER BY i.id DESC
LIMIT @page_size::int;

-- name: ListPersonalIntentRows :many
SELECT r.intent_id, r.subject_id, r.class
FROM (SELECT DISTINCT s.subject_id, s.intent_id FROM (SELECT unnest(@subjects::text[]) AS subject_id, unnest(@ids::uuid[]) AS intent_id) s) u
CROSS JOIN LATERAL (
    SELECT x.intent_id, x.subject_id, x.class
    FROM backbone.intent_pii_subjects x
    WHERE x.partition_id = @partition_id AND x.subject_id = u.subject_id AND x.intent_id = u.intent_id
    LIMIT 100 -- key classes; it keeps the look-up on the primary key
) r;
