-- +goose Up

-- Redaction of plaintext that should have been sealed: migrated events, fields that
-- the manifest lacked. Only the payload changes; the skeleton and every checksum
-- stay. The row in pii_redactions and the event pii.payload.redacted explain it.

-- Requests for redactions with their approvals. Persons are pseudonymous ids.
CREATE TABLE backbone.redaction_requests (
    requested_at timestamptz NOT NULL,
    approved_at  timestamptz,
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    id           uuid NOT NULL,
    pointers     text[] NOT NULL CHECK (cardinality(pointers) BETWEEN 1 AND 64),
    reason       text NOT NULL CHECK (octet_length(reason) BETWEEN 1 AND 1000),
    requested_by text NOT NULL,
    approved_by  text,
    CONSTRAINT redaction_requests_pkey PRIMARY KEY (partition_id, id),
    CONSTRAINT redaction_requests_persons CHECK (requested_by ~ '^[A-Za-z0-9._:-]{1,128}$' AND approved_by ~ '^[A-Za-z0-9._:-]{1,128}$'),
    CONSTRAINT redaction_requests_two_persons CHECK (lower(approved_by) <> lower(requested_by)),
    CONSTRAINT redaction_requests_approval CHECK ((approved_by IS NULL) = (approved_at IS NULL))
);

-- The redactions that were carried out: pointers and hashes, no values. The id is the
-- request's, so that a request runs once. The old hash of an event's redaction is the new
-- hash of the redaction before it.
CREATE TABLE backbone.pii_redactions (
    redacted_at      timestamptz NOT NULL,
    sequence         bigint NOT NULL,
    partition_id     integer NOT NULL,
    id               uuid NOT NULL,
    event_id         uuid NOT NULL,
    pointers         text[] NOT NULL,
    reason           text NOT NULL,
    requested_by     text NOT NULL,
    approved_by      text NOT NULL,
    old_payload_hash bytea NOT NULL CHECK (octet_length(old_payload_hash) = 32),
    new_payload_hash bytea NOT NULL CHECK (octet_length(new_payload_hash) = 32),
    CONSTRAINT pii_redactions_pkey PRIMARY KEY (partition_id, id),
    CONSTRAINT pii_redactions_chain UNIQUE (partition_id, sequence, old_payload_hash),
    CONSTRAINT pii_redactions_two_persons CHECK (lower(approved_by) <> lower(requested_by))
);

CREATE TRIGGER pii_redactions_append_only BEFORE UPDATE OR DELETE ON backbone.pii_redactions
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('redaction');
CREATE TRIGGER pii_redactions_no_truncate BEFORE TRUNCATE ON backbone.pii_redactions
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('redaction');

-- The table's constraints refuse a wrong person id, reason or number of pointers.
-- +goose StatementBegin
CREATE FUNCTION backbone.request_redaction(
    new_partition_id integer, new_id uuid, new_sequence bigint, new_pointers text[], new_reason text, new_person text
) RETURNS backbone.redaction_requests
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    made backbone.redaction_requests%ROWTYPE;
BEGIN
    IF NOT EXISTS (SELECT FROM backbone.events e WHERE e.partition_id = new_partition_id AND e.sequence = new_sequence) THEN
        RAISE EXCEPTION 'no such event' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_event';
    END IF;
    IF EXISTS (SELECT FROM unnest(new_pointers) p WHERE p IS NULL OR p NOT LIKE '/data/_%') THEN
        RAISE EXCEPTION 'only data are redacted' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_pointer';
    END IF;
    INSERT INTO backbone.redaction_requests (requested_at, sequence, partition_id, id, pointers, reason, requested_by)
    VALUES (clock_timestamp(), new_sequence, new_partition_id, new_id, new_pointers, new_reason, new_person)
    RETURNING * INTO made;
    RETURN made;
END
$$;
-- +goose StatementEnd

-- Repeating an approval that is still valid changes nothing.
-- +goose StatementBegin
CREATE FUNCTION backbone.approve_redaction(of_partition_id integer, of_id uuid, new_person text)
    RETURNS backbone.redaction_requests
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    request backbone.redaction_requests%ROWTYPE;
BEGIN
    SELECT * INTO request FROM backbone.redaction_requests r
    WHERE r.partition_id = of_partition_id AND r.id = of_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such request' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_request';
    END IF;
    IF lower(new_person) = lower(request.requested_by) THEN
        RAISE EXCEPTION 'the requester cannot approve' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_requests_two_persons';
    END IF;
    IF request.approved_at IS NULL OR request.approved_at <= clock_timestamp() - interval '72 hours' THEN
        UPDATE backbone.redaction_requests r SET approved_by = new_person, approved_at = clock_timestamp()
        WHERE r.partition_id = of_partition_id AND r.id = of_id
        RETURNING * INTO request;
    END IF;
    RETURN request;
END
$$;
-- +goose StatementEnd

-- Replaces the payload of one event by the same one with "[REDACTED]" at the
-- pointers, under a new salt. For a request that was carried out it returns that
-- redaction. The frozen format of the hash: SHA-256(L(domain) || salt || payload).
-- +goose StatementBegin
CREATE FUNCTION backbone.redact_payload(
    of_partition_id integer, of_sequence bigint, of_pointers text[], of_request uuid,
    new_salt bytea, new_payload json, old_hash bytea, new_hash bytea
) RETURNS backbone.pii_redactions
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
    SELECT * INTO done FROM backbone.pii_redactions r WHERE r.partition_id = of_partition_id AND r.id = of_request;
    IF FOUND THEN
        RETURN done;
    END IF;
    SELECT * INTO request FROM backbone.redaction_requests r WHERE r.partition_id = of_partition_id AND r.id = of_request;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such request' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_request';
    END IF;
    IF request.approved_by IS NULL OR lower(request.approved_by) = lower(request.requested_by) THEN
        RAISE EXCEPTION 'not approved' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_approval';
    END IF;
    IF request.approved_at <= clock_timestamp() - interval '72 hours' THEN
        RAISE EXCEPTION 'approval expired' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_approval_expired';
    END IF;
    IF request.sequence <> of_sequence OR request.pointers IS DISTINCT FROM of_pointers THEN
        RAISE EXCEPTION 'not what was approved' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_scope';
    END IF;

    SELECT e.id, e.payload_hash, e.content_encoding INTO skeleton
    FROM backbone.events e WHERE e.partition_id = of_partition_id AND e.sequence = of_sequence;
    IF NOT FOUND OR skeleton.content_encoding IS NOT NULL THEN
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

    UPDATE backbone.event_payloads p SET salt = new_salt, payload = new_payload
    WHERE p.partition_id = of_partition_id AND p.sequence = of_sequence;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> 1 THEN
        RAISE EXCEPTION '% payloads instead of one', changed USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_event';
    END IF;
    INSERT INTO backbone.pii_redactions (redacted_at, sequence, partition_id, id, event_id, pointers, reason,
        requested_by, approved_by, old_payload_hash, new_payload_hash)
    VALUES (clock_timestamp(), of_sequence, of_partition_id, of_request, skeleton.id, of_pointers, request.reason,
        request.requested_by, request.approved_by, current, new_hash)
    RETURNING * INTO done;
    RETURN done;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION backbone.request_redaction(integer, uuid, bigint, text[], text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.approve_redaction(integer, uuid, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.request_redaction(integer, uuid, bigint, text[], text, text) TO backbone_eraser;
GRANT EXECUTE ON FUNCTION backbone.approve_redaction(integer, uuid, text) TO backbone_eraser;
GRANT EXECUTE ON FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) TO backbone_eraser;

-- The redactor has the right to change payloads and cannot log in: the function above is
-- its only use. A new owner of a function needs the right to create in its schema while
-- the ownership changes.
GRANT UPDATE (salt, payload) ON backbone.event_payloads TO backbone_redactor;
GRANT SELECT ON backbone.redaction_requests TO backbone_redactor;
GRANT SELECT, INSERT ON backbone.pii_redactions TO backbone_redactor;
GRANT CREATE ON SCHEMA backbone TO backbone_redactor;
ALTER FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) OWNER TO backbone_redactor;
REVOKE CREATE ON SCHEMA backbone FROM backbone_redactor;

GRANT SELECT ON backbone.redaction_requests TO backbone_eraser;
GRANT SELECT ON backbone.pii_redactions TO backbone_app, backbone_reader, backbone_eraser;
GRANT SELECT ON backbone.installation, backbone.legal_entities TO backbone_eraser;
