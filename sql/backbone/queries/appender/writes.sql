-- Second round trip of an append group; the commit is in it too, unless the group
-- leases keys in another database. Rows come as parallel arrays. JSON and text arrays are sent
-- as text, so that the stored bytes are the hashed ones. The events themselves are inserted
-- first, by eventlog.InsertEvents, which is made of the table of envelope columns.

-- name: WriteEventRows :exec
-- The rows of the events: what they support and nothing else, see migration 00037.
SELECT backbone.write_event_rows(
    @partitions::int[], @firsts::bigint[], @lasts::bigint[],
    @payload_partitions::int[], @payload_sequences::bigint[], @payload_salts::bytea[], @payload_texts::text[],
    @key_partitions::int[], @key_texts::text[], @key_sequences::bigint[], @key_types::int[],
    @changed_partitions::int[], @changed_types::text[], @changed_ids::text[], @changed_metadata::text[],
    @business_partitions::int[], @business_types::text[], @business_texts::text[], @business_sequences::bigint[],
    @business_events::uuid[], @business_documents::text[],
    @series_partitions::int[], @series_names::text[], @series_numbers::bigint[],
    @intent_partitions::int[], @intent_ids::uuid[], @intent_entities::text[], @intent_types::text[], @intent_payloads::text[],
    @intent_actor_types::text[], @intent_actor_ids::text[], @intent_actor_names::text[], @intent_actor_details::text[],
    @intent_persons::text[], @intent_roles::text[], @intent_dates::date[], @intent_correlations::text[], @intent_causes::uuid[],
    @intent_systems::text[], @intent_channels::text[], @intent_references::text[], @intent_statuses::text[], @intent_plans::text[],
    @intent_needs::text[], @intent_approvals::text[], @intent_rules::text[], @intent_refusals::text[],
    @intent_firsts::bigint[], @intent_counts::int[], @intent_lasts::bigint[], @intent_revisions::int[],
    @intent_created::timestamptz[], @intent_updated::timestamptz[], @intent_documents::text[], @intent_cause_partitions::int[],
    @person_partitions::int[], @person_subjects::text[], @person_sequences::bigint[], @person_classes::smallint[], @person_paths::text[],
    @request_partitions::int[], @request_subjects::text[], @request_intents::uuid[], @request_classes::smallint[], @request_paths::text[]
);

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
