-- +goose Up

-- The rows of an append belong to ranges of its events, each of which is checked by itself. Before,
-- only the sum of their lengths was: a range that runs backwards made up for one that no event
-- has, so a session of the application could move a series or take a key without an event.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION backbone.write_event_rows(
    partitions integer[], firsts bigint[], lasts bigint[],
    payload_partitions integer[], payload_sequences bigint[], payload_salts bytea[], payload_texts text[],
    key_partitions integer[], key_texts text[], key_sequences bigint[], key_types integer[],
    changed_partitions integer[], changed_types text[], changed_ids text[], changed_metadata text[],
    business_partitions integer[], business_types text[], business_texts text[], business_sequences bigint[],
    business_events uuid[], business_documents text[],
    series_partitions integer[], series_names text[], series_numbers bigint[],
    intent_partitions integer[], intent_ids uuid[], intent_entities text[], intent_types text[], intent_payloads text[],
    intent_actor_types text[], intent_actor_ids text[], intent_actor_names text[], intent_actor_details text[],
    intent_persons text[], intent_roles text[], intent_dates date[], intent_correlations text[], intent_causes uuid[],
    intent_systems text[], intent_channels text[], intent_references text[], intent_statuses text[], intent_plans text[],
    intent_needs text[], intent_approvals text[], intent_rules text[], intent_refusals text[],
    intent_firsts bigint[], intent_counts integer[], intent_lasts bigint[], intent_revisions integer[],
    intent_created timestamptz[], intent_updated timestamptz[], intent_documents text[], intent_cause_partitions integer[],
    person_partitions integer[], person_subjects text[], person_sequences bigint[], person_classes smallint[], person_paths text[],
    request_partitions integer[], request_subjects text[], request_intents uuid[], request_classes smallint[], request_paths text[]
) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stored    bigint; -- events in the log
    continued bigint; -- partitions whose new events follow a stored one
    written   bigint; -- rows of the last statement
    of_partitions integer[]; -- partition, sequence and intent of the new events that an intent caused
    of_sequences  bigint[];
    of_intents    uuid[];
BEGIN
    -- Each range has a partition and events: the sums below would otherwise hold for ranges that
    -- make up for one another.
    IF EXISTS (
        SELECT FROM unnest(partitions, firsts, lasts) AS g (partition_id, first_sequence, last_sequence)
        WHERE (g.partition_id IS NOT NULL AND g.first_sequence <= g.last_sequence) IS NOT TRUE)
    THEN
        RAISE EXCEPTION 'a range without events' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_ranges';
    END IF;

    INSERT INTO backbone.event_payloads (partition_id, sequence, salt, payload)
    SELECT g.partition_id, u.sequence, u.salt, u.payload::json
    FROM (SELECT unnest(partitions) AS partition_id, unnest(firsts) AS first_sequence, unnest(lasts) AS last_sequence) g
    JOIN (SELECT unnest(payload_partitions) AS partition_id, unnest(payload_sequences) AS sequence,
                 unnest(payload_salts) AS salt, unnest(payload_texts) AS payload) u
      ON u.partition_id = g.partition_id AND u.sequence BETWEEN g.first_sequence AND g.last_sequence
    ORDER BY g.partition_id, u.sequence;
    GET DIAGNOSTICS written = ROW_COUNT;

    WITH appended AS MATERIALIZED (
        SELECT a.partition_id, a.sequence, a.is_new, a.stream_version, a.intent_id, a.stream_type, a.stream_id
        FROM backbone.list_appended(partitions, firsts, lasts) a
    ), streams AS (
        INSERT INTO backbone.stream_versions (partition_id, stream_type, stream_id, version, first_sequence, last_sequence)
        SELECT a.partition_id, a.stream_type, a.stream_id, max(a.stream_version), min(a.sequence), max(a.sequence)
        FROM appended a
        WHERE a.is_new
        GROUP BY a.partition_id, a.stream_type, a.stream_id
        ON CONFLICT (partition_id, stream_type, stream_id)
        DO UPDATE SET version = excluded.version, last_sequence = excluded.last_sequence
    )
    SELECT count(*) FILTER (WHERE a.is_new), count(*) FILTER (WHERE NOT a.is_new),
           array_agg(a.partition_id) FILTER (WHERE a.is_new AND a.intent_id IS NOT NULL),
           array_agg(a.sequence) FILTER (WHERE a.is_new AND a.intent_id IS NOT NULL),
           array_agg(a.intent_id) FILTER (WHERE a.is_new AND a.intent_id IS NOT NULL)
    INTO stored, continued, of_partitions, of_sequences, of_intents
    FROM appended a;
    IF written IS DISTINCT FROM cardinality(payload_sequences) OR stored <> written
        OR written <> (SELECT coalesce(sum(l.last_sequence - l.first_sequence + 1), 0)
                       FROM (SELECT unnest(firsts) AS first_sequence, unnest(lasts) AS last_sequence) l) THEN
        RAISE EXCEPTION '% payloads for % events', cardinality(payload_sequences), stored
            USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_payloads';
    END IF;

    -- The new events continue the log.
    IF continued <> (SELECT count(*) FROM unnest(firsts) AS f (first_sequence) WHERE f.first_sequence <> 1) THEN
        RAISE EXCEPTION 'events that do not continue the log' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_sequence';
    END IF;

    IF cardinality(key_sequences) > 0 THEN
        INSERT INTO backbone.event_keys (partition_id, key, sequence, type_no)
        SELECT g.partition_id, u.key, u.sequence, u.type_no
        FROM (SELECT unnest(partitions) AS partition_id, unnest(firsts) AS first_sequence, unnest(lasts) AS last_sequence) g
        JOIN (SELECT unnest(key_partitions) AS partition_id, unnest(key_texts) AS key, unnest(key_sequences) AS sequence,
                     unnest(key_types) AS type_no) u
          ON u.partition_id = g.partition_id AND u.sequence BETWEEN g.first_sequence AND g.last_sequence;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(key_sequences) THEN
            RAISE EXCEPTION 'a key of another event' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_keys';
        END IF;
    END IF;

    -- State and metadata of streams, whose other columns were written above.
    IF cardinality(changed_ids) > 0 THEN
        UPDATE backbone.stream_versions s
        SET lifecycle = CASE WHEN e.state IS NULL THEN s.lifecycle
                             WHEN e.state IN ('stream.deleted', 'stream.tombstoned') THEN substr(e.state, 8) END,
            readable_from = coalesce(e.recreated, s.readable_from),
            metadata = CASE WHEN e.described IS NULL THEN s.metadata ELSE e.metadata::json END,
            metadata_version = coalesce(e.described, s.metadata_version)
        FROM (
            SELECT u.partition_id, u.stream_type, u.stream_id, u.metadata,
                   (array_agg(a.type ORDER BY a.sequence DESC) FILTER (WHERE a.type <> 'stream.metadata.changed'))[1] AS state,
                   max(a.stream_version) FILTER (WHERE a.type = 'stream.recreated') AS recreated,
                   max(a.stream_version) FILTER (WHERE a.type = 'stream.metadata.changed') AS described
            FROM (SELECT unnest(changed_partitions) AS partition_id, unnest(changed_types) AS stream_type,
                         unnest(changed_ids) AS stream_id, unnest(changed_metadata) AS metadata) u
            JOIN backbone.list_appended(partitions, firsts, lasts) a
              ON a.partition_id = u.partition_id AND a.stream_type = u.stream_type AND a.stream_id = u.stream_id AND a.is_new
            GROUP BY u.partition_id, u.stream_type, u.stream_id, u.metadata
        ) e
        WHERE s.partition_id = e.partition_id AND s.stream_type = e.stream_type AND s.stream_id = e.stream_id;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(changed_ids) THEN
            RAISE EXCEPTION 'a stream that no event changes' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_streams';
        END IF;
    END IF;

    IF cardinality(business_sequences) > 0 THEN
        INSERT INTO backbone.business_keys (partition_id, event_type, key, sequence, event_id, document)
        SELECT g.partition_id, u.event_type, u.key, u.sequence, u.event_id, u.document
        FROM (SELECT unnest(partitions) AS partition_id, unnest(firsts) AS first_sequence, unnest(lasts) AS last_sequence) g
        JOIN (SELECT unnest(business_partitions) AS partition_id, unnest(business_types) AS event_type, unnest(business_texts) AS key,
                     unnest(business_sequences) AS sequence, unnest(business_events) AS event_id, unnest(business_documents) AS document) u
          ON u.partition_id = g.partition_id AND u.sequence BETWEEN g.first_sequence AND g.last_sequence;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(business_sequences) THEN
            RAISE EXCEPTION 'a business key of another event' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_business_keys';
        END IF;
    END IF;

    -- A series moves forward only.
    IF cardinality(series_names) > 0 THEN
        INSERT INTO backbone.number_series AS n (partition_id, series, next_number)
        SELECT g.partition_id, u.series, u.next_number
        FROM (SELECT unnest(partitions) AS partition_id, unnest(firsts) AS first_sequence, unnest(lasts) AS last_sequence) g
        JOIN (SELECT unnest(series_partitions) AS partition_id, unnest(series_names) AS series, unnest(series_numbers) AS next_number) u
          ON u.partition_id = g.partition_id
        ON CONFLICT (partition_id, series) DO UPDATE SET next_number = excluded.next_number
        WHERE n.next_number < excluded.next_number;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(series_names) THEN
            RAISE EXCEPTION 'a series without an event, or back' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_series';
        END IF;
    END IF;

    -- The event at last_sequence holds the digest of the row. A revision follows the one before.
    IF cardinality(intent_ids) > 0 THEN
        INSERT INTO backbone.intents AS i (
            partition_id, id, legal_entity, type, payload, actor_type, actor_id, actor_name, actor_details,
            person_id, roles, effective_date, correlation_id, caused_by, source_system, source_channel, source_reference,
            status, plan_hash, need, approvals, rules, refusal, first_sequence, event_count, last_sequence, revision, created_at, updated_at,
            documents, caused_by_partition
        )
        SELECT a.partition_id, u.id, u.legal_entity, u.type, u.payload::json, u.actor_type, u.actor_id, u.actor_name, u.actor_details::json,
            u.person_id, u.roles::text[], u.effective_date, u.correlation_id, u.caused_by, u.source_system, u.source_channel, u.source_reference,
            u.status, u.plan_hash, u.need::json, u.approvals::json, u.rules::json, u.refusal::json,
            u.first_sequence, u.event_count, u.last_sequence, u.revision, u.created_at, u.updated_at,
            u.documents::text[], u.caused_by_partition
        FROM (SELECT unnest(of_partitions) AS partition_id, unnest(of_sequences) AS sequence, unnest(of_intents) AS intent_id) a
        JOIN (SELECT unnest(intent_partitions) AS partition_id, unnest(intent_ids) AS id, unnest(intent_entities) AS legal_entity,
                     unnest(intent_types) AS type, unnest(intent_payloads) AS payload, unnest(intent_actor_types) AS actor_type,
                     unnest(intent_actor_ids) AS actor_id, unnest(intent_actor_names) AS actor_name,
                     unnest(intent_actor_details) AS actor_details, unnest(intent_persons) AS person_id, unnest(intent_roles) AS roles,
                     unnest(intent_dates) AS effective_date, unnest(intent_correlations) AS correlation_id,
                     unnest(intent_causes) AS caused_by, unnest(intent_systems) AS source_system,
                     unnest(intent_channels) AS source_channel, unnest(intent_references) AS source_reference,
                     unnest(intent_statuses) AS status, unnest(intent_plans) AS plan_hash, unnest(intent_needs) AS need,
                     unnest(intent_approvals) AS approvals, unnest(intent_rules) AS rules, unnest(intent_refusals) AS refusal,
                     unnest(intent_firsts) AS first_sequence, unnest(intent_counts) AS event_count,
                     unnest(intent_lasts) AS last_sequence, unnest(intent_revisions) AS revision,
                     unnest(intent_created) AS created_at, unnest(intent_updated) AS updated_at,
                     unnest(intent_documents) AS documents, unnest(intent_cause_partitions) AS caused_by_partition) u
          ON u.partition_id = a.partition_id AND u.last_sequence = a.sequence AND u.id = a.intent_id
        ON CONFLICT (partition_id, id)
        DO UPDATE SET payload = excluded.payload, effective_date = excluded.effective_date,
                      person_id = excluded.person_id, roles = excluded.roles,
                      status = excluded.status, plan_hash = excluded.plan_hash, need = excluded.need,
                      approvals = excluded.approvals, rules = excluded.rules, refusal = excluded.refusal, documents = excluded.documents,
                      first_sequence = excluded.first_sequence, event_count = excluded.event_count,
                      last_sequence = excluded.last_sequence, revision = excluded.revision, updated_at = excluded.updated_at
        WHERE i.revision = excluded.revision - 1;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(intent_ids) THEN
            RAISE EXCEPTION 'an intent without its event, or of another revision' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_intents';
        END IF;
    END IF;

    IF cardinality(person_sequences) > 0 THEN
        INSERT INTO backbone.event_pii_subjects (partition_id, subject_id, sequence, class, paths)
        SELECT g.partition_id, u.subject_id, u.sequence, u.class, u.paths::text[]
        FROM (SELECT unnest(partitions) AS partition_id, unnest(firsts) AS first_sequence, unnest(lasts) AS last_sequence) g
        JOIN (SELECT unnest(person_partitions) AS partition_id, unnest(person_subjects) AS subject_id, unnest(person_sequences) AS sequence,
                     unnest(person_classes) AS class, unnest(person_paths) AS paths) u
          ON u.partition_id = g.partition_id AND u.sequence BETWEEN g.first_sequence AND g.last_sequence;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality(person_sequences) THEN
            RAISE EXCEPTION 'a person of another event' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_persons';
        END IF;
    END IF;

    -- An intent that is sealed again at a later revision keeps its first row of a subject: the
    -- row says that the intent is about the person.
    IF cardinality(request_intents) > 0 THEN
        IF EXISTS (
            SELECT FROM (SELECT unnest(request_partitions) AS partition_id, unnest(request_intents) AS intent_id) u
            WHERE NOT EXISTS (
                SELECT FROM (SELECT unnest(intent_partitions) AS partition_id, unnest(intent_ids) AS id) i
                WHERE i.partition_id = u.partition_id AND i.id = u.intent_id))
        THEN
            RAISE EXCEPTION 'a person of another intent' USING ERRCODE = 'check_violation', CONSTRAINT = 'event_rows_persons';
        END IF;
        INSERT INTO backbone.intent_pii_subjects (partition_id, subject_id, intent_id, class, paths)
        SELECT u.partition_id, u.subject_id, u.intent_id, u.class, u.paths::text[]
        FROM (SELECT unnest(request_partitions) AS partition_id, unnest(request_subjects) AS subject_id, unnest(request_intents) AS intent_id,
                     unnest(request_classes) AS class, unnest(request_paths) AS paths) u
        ON CONFLICT (partition_id, subject_id, intent_id, class) DO NOTHING;
    END IF;
END
$$;
-- +goose StatementEnd

-- Events of several partitions are read partition by partition, as those of one are: a plan with the
-- partition as its parameter opens that one alone, a join opens every partition of the log.

-- list_appended returns the events from the one before each first sequence to the last.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION backbone.list_appended(partitions integer[], firsts bigint[], lasts bigint[])
    RETURNS TABLE (partition_id integer, sequence bigint, is_new boolean, stream_version bigint, intent_id uuid, stream_type text, stream_id text, type text)
    LANGUAGE plpgsql
    STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    of_partition integer;
    first_of     bigint;
    last_of      bigint;
BEGIN
    FOR i IN 1 .. cardinality(partitions) LOOP
        of_partition := partitions[i];
        first_of := firsts[i];
        last_of := lasts[i];
        RETURN QUERY
            SELECT x.partition_id, x.sequence, x.sequence >= first_of, x.stream_version, x.intent_id, x.stream_type, x.stream_id, x.type
            FROM backbone.events x
            WHERE x.partition_id = of_partition AND x.sequence BETWEEN first_of - 1 AND last_of
            ORDER BY x.sequence
            LIMIT last_of - first_of + 2;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- last_events returns one row per partition, also for empty ones, and the database's clock.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION backbone.last_events(partitions integer[])
    RETURNS TABLE (partition_id integer, sequence bigint, recorded_at timestamptz, checksum bytea, database_time timestamptz)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    of_partition integer;
BEGIN
    FOREACH of_partition IN ARRAY partitions LOOP
        RETURN QUERY
            SELECT of_partition, coalesce(e.sequence, 0), coalesce(e.recorded_at, to_timestamp(0)), e.checksum, clock_timestamp()
            FROM (SELECT) one
            LEFT JOIN (
                SELECT x.sequence, x.recorded_at, x.checksum
                FROM backbone.events x
                WHERE x.partition_id = of_partition
                ORDER BY x.sequence DESC
                LIMIT 1
            ) e ON true;
    END LOOP;
END
$$;
-- +goose StatementEnd
