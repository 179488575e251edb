-- +goose Up

-- No number is removed from a payload, at whatever depth of a redacted value. The function was
-- asked for the value at the pointer alone, so that an array of lines was replaced with its
-- amounts. All else is as it was.

-- Replaces the payload of one event by the same one with "[REDACTED]" at the pointers, under a
-- new salt, and moves the request to redacted, all in one transaction. It demands the request
-- in state approved: another person approved it, for this event, these pointers and this
-- payload, in the last 72 hours. For a request that was carried out it returns that redaction.
-- The frozen format of the hash: SHA-256(L(domain) || salt || payload).
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION backbone.redact_payload(
    of_partition_id integer, of_sequence bigint, of_pointers text[], of_request uuid,
    new_salt bytea, new_payload json, old_hash bytea, new_hash bytea
) RETURNS SETOF backbone.pii_redactions
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    domain   CONSTANT bytea := int4send(19) || convert_to('backbone/payload/v1', 'UTF8');
    done     backbone.pii_redactions%ROWTYPE;
    request  backbone.redaction_requests%ROWTYPE;
    skeleton record;
    stored   record;
    current  bytea; -- the hash of what is stored
    vouched  bytea; -- the hash that skeleton and earlier redactions vouch for
    document jsonb;
    pointer  text;
    path     text[];
    changed  integer;
BEGIN
    -- Waits for transactions that save a snapshot; later ones see the redaction and save
    -- nothing.
    LOCK TABLE backbone.entity_snapshots, backbone.stream_snapshots IN SHARE ROW EXCLUSIVE MODE;
    SELECT q.* INTO request FROM backbone.redaction_requests q WHERE q.partition_id = of_partition_id AND q.id = of_request FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such request' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_request';
    END IF;
    SELECT * INTO done FROM backbone.pii_redactions r WHERE r.partition_id = of_partition_id AND r.id = of_request;
    IF FOUND THEN
        RETURN NEXT done;
        RETURN;
    END IF;
    IF request.state <> 'approved' OR request.approved_by IS NULL OR lower(request.approved_by) = lower(request.requested_by) THEN
        RAISE EXCEPTION 'not approved' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_approval';
    END IF;
    IF request.approved_at <= clock_timestamp() - interval '72 hours' THEN
        RAISE EXCEPTION 'approval expired' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_approval_expired';
    END IF;
    IF request.sequence <> of_sequence OR request.pointers IS DISTINCT FROM of_pointers OR request.scope IS DISTINCT FROM old_hash THEN
        RAISE EXCEPTION 'not what was approved' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_scope';
    END IF;

    SELECT e.id, e.payload_hash, e.content_encoding, e.stream_type, e.stream_id, e.stream_version INTO skeleton
    FROM backbone.events e WHERE e.partition_id = of_partition_id AND e.sequence = of_sequence;
    IF NOT FOUND OR skeleton.content_encoding IS NOT NULL OR skeleton.id <> request.event_id THEN
        RAISE EXCEPTION 'no such event in plain JSON' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_event';
    END IF;
    SELECT p.salt, p.payload INTO stored
    FROM backbone.event_payloads p WHERE p.partition_id = of_partition_id AND p.sequence = of_sequence FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no payload' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_event';
    END IF;
    current := sha256(domain || stored.salt || convert_to(stored.payload::text, 'UTF8'));
    vouched := coalesce((
        SELECT a.new_payload_hash FROM backbone.pii_redactions a
        WHERE a.partition_id = of_partition_id AND a.sequence = of_sequence
          AND NOT EXISTS (
            SELECT FROM backbone.pii_redactions b
            WHERE b.partition_id = a.partition_id AND b.sequence = a.sequence AND b.old_payload_hash = a.new_payload_hash)
        LIMIT 1), skeleton.payload_hash);
    IF current <> vouched OR old_hash IS DISTINCT FROM current THEN
        RAISE EXCEPTION 'the event was changed' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_event_changed';
    END IF;

    document := stored.payload::jsonb;
    FOREACH pointer IN ARRAY of_pointers LOOP
        path := ARRAY(
            SELECT replace(replace(token, '~1', '/'), '~0', '~')
            FROM unnest(string_to_array(substr(pointer, 2), '/')) WITH ORDINALITY AS u (token, place) ORDER BY place);
        IF document #> path IS NULL THEN
            RAISE EXCEPTION 'no value there' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_pointer';
        END IF;
        IF (document #> path)::text LIKE '%"$pii"%' OR EXISTS (
            SELECT FROM generate_series(1, cardinality(path)) depth
            WHERE jsonb_typeof(document #> path[1:depth]) = 'object' AND jsonb_exists(document #> path[1:depth], '$pii'))
        THEN
            RAISE EXCEPTION 'sealed already' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_sealed';
        END IF;
        IF jsonb_path_exists(document #> path, 'strict $.** ? (@.type() == "number")') THEN
            RAISE EXCEPTION 'a number' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_number';
        END IF;
        IF document #> path = '"[REDACTED]"'::jsonb THEN
            RAISE EXCEPTION 'redacted already' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_repeated';
        END IF;
        document := jsonb_set(document, path, '"[REDACTED]"'::jsonb, false);
    END LOOP;
    -- As text, in which 1.50 is not 1.5. Of members with one name jsonb sees the last
    -- alone, and readers may take another.
    IF new_payload IS NULL OR document::text <> new_payload::jsonb::text OR EXISTS (
        WITH RECURSIVE inside (part) AS (
            SELECT new_payload
            UNION ALL
            SELECT c.value FROM inside i CROSS JOIN LATERAL (
                SELECT value FROM json_each(CASE json_typeof(i.part) WHEN 'object' THEN i.part ELSE '{}' END)
                UNION ALL
                SELECT value FROM json_array_elements(CASE json_typeof(i.part) WHEN 'array' THEN i.part ELSE '[]' END)) c)
        SELECT FROM inside i WHERE json_typeof(i.part) = 'object'
            AND (SELECT count(*) <> count(DISTINCT name) FROM json_object_keys(i.part) name))
    THEN
        RAISE EXCEPTION 'more or less than the pointers was changed' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_payload';
    END IF;
    IF octet_length(new_salt) IS DISTINCT FROM 16 OR new_salt = stored.salt
        OR new_hash IS DISTINCT FROM sha256(domain || new_salt || convert_to(new_payload::text, 'UTF8'))
    THEN
        RAISE EXCEPTION 'the new hash does not match' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_hash';
    END IF;

    INSERT INTO backbone.pii_redactions (redacted_at, sequence, partition_id, id, event_id, pointers, reason,
        requested_by, approved_by, old_payload_hash, new_payload_hash)
    VALUES (clock_timestamp(), of_sequence, of_partition_id, of_request, skeleton.id, of_pointers, request.reason,
        request.requested_by, request.approved_by, current, new_hash)
    RETURNING * INTO done;
    UPDATE backbone.event_payloads p SET salt = new_salt, payload = new_payload, redactions = (
        SELECT json_agg(json_build_object('request', r.id, 'pointers', r.pointers, 'at', r.redacted_at) ORDER BY r.redacted_at, r.id)
        FROM backbone.pii_redactions r WHERE r.partition_id = of_partition_id AND r.sequence = of_sequence)
    WHERE p.partition_id = of_partition_id AND p.sequence = of_sequence;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> 1 THEN
        RAISE EXCEPTION '% payloads instead of one', changed USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_event';
    END IF;
    UPDATE backbone.redaction_requests q
    SET state = 'redacted', revision = q.revision + 1, attempts = 0, last_error = NULL, updated_at = clock_timestamp()
    WHERE q.partition_id = of_partition_id AND q.id = of_request;
    DELETE FROM backbone.entity_snapshots s WHERE s.partition_id = of_partition_id AND s.as_of_sequence >= of_sequence;
    DELETE FROM backbone.stream_snapshots s
    WHERE s.partition_id = of_partition_id AND s.stream_type = skeleton.stream_type AND s.stream_id = skeleton.stream_id
      AND s.version >= skeleton.stream_version;
    RETURN NEXT done;
END
$$;
-- +goose StatementEnd
