-- Second round trip of an append group; the commit is in it too, unless the group
-- leases keys in another database. Rows come as parallel arrays and are
-- joined to the locked head rows, which is the form that a sharded cluster under
-- row security accepts. JSON and text arrays are sent as text, so that the stored
-- bytes are the hashed ones. Events and payloads are inserted in the order of their
-- primary keys, whatever plan the join has: rows in descending order would split the
-- last page of an index in its middle each time and leave all pages half empty. The
-- events themselves are inserted by eventlog.InsertEvents, which is made of the table
-- of envelope columns.

-- name: InsertEventPayloads :execrows
INSERT INTO backbone.event_payloads (partition_id, sequence, salt, payload)
SELECT h.partition_id, u.sequence, u.salt, u.payload::json
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@sequences::bigint[]) AS sequence,
             unnest(@salts::bytea[]) AS salt,
             unnest(@payloads::text[]) AS payload) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ORDER BY h.partition_id, u.sequence;

-- name: InsertEventKeys :execrows
INSERT INTO backbone.event_keys (partition_id, key, sequence, type_no)
SELECT h.partition_id, u.key, u.sequence, u.type_no
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@keys::text[]) AS key,
             unnest(@sequences::bigint[]) AS sequence,
             unnest(@type_numbers::int[]) AS type_no) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[]);

-- name: UpsertStreamVersions :execrows
INSERT INTO backbone.stream_versions (partition_id, stream_type, stream_id, version, first_sequence, last_sequence)
SELECT h.partition_id, u.stream_type, u.stream_id, u.version, u.first_sequence, u.last_sequence
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@stream_types::text[]) AS stream_type,
             unnest(@stream_ids::text[]) AS stream_id,
             unnest(@versions::bigint[]) AS version,
             unnest(@first_sequences::bigint[]) AS first_sequence,
             unnest(@last_sequences::bigint[]) AS last_sequence) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ON CONFLICT (partition_id, stream_type, stream_id)
DO UPDATE SET version = excluded.version, last_sequence = excluded.last_sequence;

-- name: InsertBusinessKeys :execrows
INSERT INTO backbone.business_keys (partition_id, event_type, key, sequence, event_id, document)
SELECT h.partition_id, u.event_type, u.key, u.sequence, u.event_id, u.document
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@event_types::text[]) AS event_type,
             unnest(@keys::text[]) AS key,
             unnest(@sequences::bigint[]) AS sequence,
             unnest(@event_ids::uuid[]) AS event_id,
             unnest(@documents::text[]) AS document) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[]);

-- name: InsertIdempotencyKeys :execrows
-- An expired row is replaced. A row that is still valid is not: the row count is then too
-- low, which the appender reports. Only a defect leads there, because the key was read under
-- the head lock.
INSERT INTO backbone.idempotency_keys AS k (partition_id, key, fingerprint, intent_id, first_sequence, event_count, expires_at)
SELECT h.partition_id, u.key, u.fingerprint, u.intent_id, u.first_sequence, u.event_count, u.expires_at
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@keys::text[]) AS key,
             unnest(@fingerprints::bytea[]) AS fingerprint,
             unnest(@intent_ids::uuid[]) AS intent_id,
             unnest(@first_sequences::bigint[]) AS first_sequence,
             unnest(@event_counts::int[]) AS event_count,
             unnest(@expires_at::timestamptz[]) AS expires_at) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ON CONFLICT (partition_id, key)
DO UPDATE SET fingerprint = excluded.fingerprint, intent_id = excluded.intent_id,
              first_sequence = excluded.first_sequence, event_count = excluded.event_count,
              expires_at = excluded.expires_at, bound = excluded.bound
WHERE k.expires_at <= @now::timestamptz;

-- name: UpsertNumberSeries :execrows
INSERT INTO backbone.number_series (partition_id, series, next_number)
SELECT h.partition_id, u.series, u.next_number
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@series::text[]) AS series,
             unnest(@next_numbers::bigint[]) AS next_number) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ON CONFLICT (partition_id, series) DO UPDATE SET next_number = excluded.next_number;

-- name: UpsertIntents :execrows
-- Revisions were compared under the head lock, which every writer of intents holds.
INSERT INTO backbone.intents (
    partition_id, id, legal_entity, type, payload, actor_type, actor_id, actor_name, actor_details,
    person_id, roles, effective_date, correlation_id, caused_by, source_system, source_channel, source_reference,
    status, plan_hash, need, approvals, rules, refusal, first_sequence, event_count, last_sequence, revision, created_at, updated_at
)
SELECT h.partition_id, u.id, u.legal_entity, u.type, u.payload::json, u.actor_type, u.actor_id, u.actor_name, u.actor_details::json,
    u.person_id, u.roles::text[], u.effective_date, u.correlation_id, u.caused_by, u.source_system, u.source_channel, u.source_reference,
    u.status, u.plan_hash, u.need::json, u.approvals::json, u.rules::json, u.refusal::json, u.first_sequence, u.event_count, u.last_sequence, u.revision, u.created_at, u.updated_at
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@ids::uuid[]) AS id,
             unnest(@legal_entities::text[]) AS legal_entity,
             unnest(@types::text[]) AS type,
             unnest(@payloads::text[]) AS payload,
             unnest(@actor_types::text[]) AS actor_type,
             unnest(@actor_ids::text[]) AS actor_id,
             unnest(@actor_names::text[]) AS actor_name,
             unnest(@actor_details::text[]) AS actor_details,
             unnest(@person_ids::text[]) AS person_id,
             unnest(@roles::text[]) AS roles,
             unnest(@effective_dates::date[]) AS effective_date,
             unnest(@correlation_ids::text[]) AS correlation_id,
             unnest(@caused_by::uuid[]) AS caused_by,
             unnest(@source_systems::text[]) AS source_system,
             unnest(@source_channels::text[]) AS source_channel,
             unnest(@source_references::text[]) AS source_reference,
             unnest(@statuses::text[]) AS status,
             unnest(@plan_hashes::text[]) AS plan_hash,
             unnest(@needs::text[]) AS need,
             unnest(@approvals::text[]) AS approvals,
             unnest(@rules::text[]) AS rules,
             unnest(@refusals::text[]) AS refusal,
             unnest(@first_sequences::bigint[]) AS first_sequence,
             unnest(@event_counts::int[]) AS event_count,
             unnest(@last_sequences::bigint[]) AS last_sequence,
             unnest(@revisions::int[]) AS revision,
             unnest(@created_at::timestamptz[]) AS created_at,
             unnest(@updated_at::timestamptz[]) AS updated_at) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ON CONFLICT (partition_id, id)
DO UPDATE SET payload = excluded.payload, effective_date = excluded.effective_date,
              person_id = excluded.person_id, roles = excluded.roles,
              status = excluded.status, plan_hash = excluded.plan_hash, need = excluded.need,
              approvals = excluded.approvals, rules = excluded.rules, refusal = excluded.refusal,
              first_sequence = excluded.first_sequence, event_count = excluded.event_count,
              last_sequence = excluded.last_sequence, revision = excluded.revision, updated_at = excluded.updated_at;

-- name: InsertEventPIISubjects :execrows
INSERT INTO backbone.event_pii_subjects (partition_id, subject_id, sequence, class, paths)
SELECT h.partition_id, u.subject_id, u.sequence, u.class, u.paths::text[]
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@subject_ids::text[]) AS subject_id,
             unnest(@sequences::bigint[]) AS sequence,
             unnest(@classes::smallint[]) AS class,
             unnest(@paths::text[]) AS paths) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[]);

-- name: InsertIntentPIISubjects :execrows
-- An intent that is sealed again at a later revision keeps its first row of a
-- subject: the row says that the intent is about the person.
INSERT INTO backbone.intent_pii_subjects (partition_id, subject_id, intent_id, class, paths)
SELECT h.partition_id, u.subject_id, u.intent_id, u.class, u.paths::text[]
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@subject_ids::text[]) AS subject_id,
             unnest(@intent_ids::uuid[]) AS intent_id,
             unnest(@classes::smallint[]) AS class,
             unnest(@paths::text[]) AS paths) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ON CONFLICT (partition_id, subject_id, intent_id, class) DO NOTHING;

-- name: ChangeStreams :execrows
-- UpsertStreamVersions for streams whose state or metadata change in this group; the rows
-- of all other streams stay narrow. Without a new metadata version the metadata stay.
INSERT INTO backbone.stream_versions AS s (
    partition_id, stream_type, stream_id, version, first_sequence, last_sequence, lifecycle, readable_from, metadata, metadata_version
)
SELECT h.partition_id, u.stream_type, u.stream_id, u.version, u.first_sequence, u.last_sequence,
    u.lifecycle, u.readable_from, u.metadata::json, u.metadata_version
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@stream_types::text[]) AS stream_type,
             unnest(@stream_ids::text[]) AS stream_id,
             unnest(@versions::bigint[]) AS version,
             unnest(@first_sequences::bigint[]) AS first_sequence,
             unnest(@last_sequences::bigint[]) AS last_sequence,
             unnest(@lifecycles::text[]) AS lifecycle,
             unnest(@readable_from::bigint[]) AS readable_from,
             unnest(@metadata::text[]) AS metadata,
             unnest(@metadata_versions::bigint[]) AS metadata_version) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ON CONFLICT (partition_id, stream_type, stream_id)
DO UPDATE SET version = excluded.version, last_sequence = excluded.last_sequence, lifecycle = excluded.lifecycle,
              readable_from = COALESCE(excluded.readable_from, s.readable_from),
              metadata = CASE WHEN excluded.metadata_version IS NULL THEN s.metadata ELSE excluded.metadata END,
              metadata_version = COALESCE(excluded.metadata_version, s.metadata_version);
