-- +goose Up

-- A redaction is a request, like an erasure: the server stores it for a person with a
-- token, another person approves the payload that was previewed, and a worker carries it
-- out. Every move is a function of the eraser's role that locks the request, so that of two
-- persons who decide at the same time one is too late.

ALTER TABLE backbone.redaction_requests
    ADD COLUMN updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ADD COLUMN completed_at timestamptz,
    ADD COLUMN revision     integer NOT NULL DEFAULT 1,
    ADD COLUMN attempts     integer NOT NULL DEFAULT 0,
    ADD COLUMN tenant_id    text COLLATE "C",
    ADD COLUMN event_id     uuid,
    ADD COLUMN state        text COLLATE "C" NOT NULL DEFAULT 'expired',
    ADD COLUMN scope        bytea CHECK (octet_length(scope) = 32), -- the hash of the stored payload at the preview
    ADD COLUMN last_error   text,
    ADD COLUMN ended_by     text,
    ADD COLUMN end_reason   text,
    ADD COLUMN preview      json,
    ADD COLUMN results      json;

-- Requests of the retired command: those that were carried out go on from there, all
-- others count as expired.
UPDATE backbone.redaction_requests r
SET tenant_id = l.tenant_id, event_id = e.id
FROM backbone.legal_entities l, backbone.events e
WHERE l.partition_id = r.partition_id AND e.partition_id = r.partition_id AND e.sequence = r.sequence;
UPDATE backbone.redaction_requests r
SET state = CASE WHEN EXISTS (
        SELECT FROM backbone.events e
        WHERE e.type = 'pii.payload.redacted' AND e.partition_id = x.partition_id AND e.caused_by = x.event_id AND e.recorded_at >= x.redacted_at)
    THEN 'completed' ELSE 'redacted' END
FROM backbone.pii_redactions x
WHERE x.partition_id = r.partition_id AND x.id = r.id;

ALTER TABLE backbone.redaction_requests
    ALTER COLUMN tenant_id SET NOT NULL,
    ALTER COLUMN event_id SET NOT NULL,
    ALTER COLUMN state DROP DEFAULT,
    ADD CONSTRAINT redaction_requests_state CHECK (state IN (
        'previewed', 'approved', 'redacted', 'announced', 'rebuilt', 'completed', 'rejected', 'withdrawn', 'expired', 'refused')),
    ADD CONSTRAINT redaction_requests_decided CHECK (
        state NOT IN ('approved', 'redacted', 'announced', 'rebuilt', 'completed') OR approved_by IS NOT NULL);

CREATE INDEX redaction_requests_id ON backbone.redaction_requests (id);
CREATE INDEX redaction_requests_tenant ON backbone.redaction_requests (tenant_id, requested_at, id);
CREATE INDEX redaction_requests_work ON backbone.redaction_requests (requested_at, id)
    WHERE state IN ('approved', 'redacted', 'announced', 'rebuilt');

-- What a reader sees of the redactions of an event: request, pointers and time of each, in
-- order. No hash covers it; verification compares it with pii_redactions.
ALTER TABLE backbone.event_payloads ADD COLUMN redactions json;

-- The transitions of a request, except those that only one function makes: approved and
-- redacted. A test compares them with those of the domain.
-- +goose StatementBegin
CREATE FUNCTION backbone.redaction_can_become(from_state text, to_state text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN from_state || '>' || to_state IN (
        'previewed>approved', 'approved>redacted', 'redacted>announced', 'announced>rebuilt', 'rebuilt>completed',
        'previewed>rejected', 'previewed>withdrawn', 'previewed>refused',
        'approved>previewed', 'approved>withdrawn', 'approved>expired', 'approved>refused');
END
$$;
-- +goose StatementEnd

-- Locks a request and returns it.
-- +goose StatementBegin
CREATE FUNCTION backbone.lock_redaction(of_partition_id integer, of_id uuid) RETURNS backbone.redaction_requests
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r backbone.redaction_requests;
BEGIN
    SELECT q.* INTO r FROM backbone.redaction_requests q WHERE q.partition_id = of_partition_id AND q.id = of_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such request' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_request';
    END IF;
    RETURN r;
END
$$;
-- +goose StatementEnd

DROP FUNCTION backbone.request_redaction(integer, uuid, bigint, text[], text, text);
DROP FUNCTION backbone.approve_redaction(integer, uuid, text);
DROP FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea);
DROP FUNCTION IF EXISTS backbone.replace_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea);

-- The table's constraints refuse a wrong person id, reason or number of pointers. Repeating
-- a request changes nothing.
-- +goose StatementBegin
CREATE FUNCTION backbone.request_redaction(
    new_partition_id integer, new_id uuid, new_sequence bigint, new_pointers text[], new_reason text, new_person text,
    new_scope bytea, new_preview json
) RETURNS SETOF backbone.redaction_requests
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    made backbone.redaction_requests;
BEGIN
    IF EXISTS (SELECT FROM unnest(new_pointers) p WHERE p IS NULL OR p NOT LIKE '/data/_%') THEN
        RAISE EXCEPTION 'only data are redacted' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_pointer';
    END IF;
    INSERT INTO backbone.redaction_requests (requested_at, updated_at, sequence, partition_id, id, tenant_id, event_id, pointers, reason,
        requested_by, state, scope, preview)
    SELECT clock_timestamp(), clock_timestamp(), e.sequence, e.partition_id, new_id, l.tenant_id, e.id, new_pointers, new_reason,
        new_person, 'previewed', new_scope, new_preview
    FROM backbone.events e JOIN backbone.legal_entities l ON l.partition_id = e.partition_id
    WHERE e.partition_id = new_partition_id AND e.sequence = new_sequence
    ON CONFLICT DO NOTHING
    RETURNING * INTO made;
    IF made.id IS NULL THEN
        SELECT q.* INTO made FROM backbone.redaction_requests q WHERE q.partition_id = new_partition_id AND q.id = new_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no such event' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_event';
        ELSIF made.sequence <> new_sequence OR made.pointers <> new_pointers
            OR made.reason <> new_reason OR made.requested_by <> new_person THEN
            RAISE EXCEPTION 'another request' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_duplicate';
        END IF;
    END IF;
    RETURN NEXT made;
END
$$;
-- +goose StatementEnd

-- Stores a request in its next state. Only a preview changes the scope, and it removes the
-- approval. A repeat changes nothing.
-- +goose StatementBegin
CREATE FUNCTION backbone.move_redaction(
    of_partition_id integer, of_id uuid, from_revision integer, new_state text, new_scope bytea, new_preview json,
    by_person text, why text, new_results json
) RETURNS SETOF backbone.redaction_requests
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r backbone.redaction_requests;
BEGIN
    r := backbone.lock_redaction(of_partition_id, of_id);
    IF r.revision = from_revision + 1 AND r.state = new_state
        AND r.ended_by IS NOT DISTINCT FROM by_person AND r.end_reason IS NOT DISTINCT FROM why THEN
        RETURN NEXT r; -- a repeat
        RETURN;
    END IF;
    IF r.revision <> from_revision THEN
        RAISE EXCEPTION 'another process moved it' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_changed';
    END IF;
    IF new_state IN ('approved', 'redacted') OR new_state = 'previewed' AND new_scope IS NULL
        OR NOT (backbone.redaction_can_become(r.state, new_state) OR r.state = 'previewed' AND new_state = 'previewed') THEN
        RAISE EXCEPTION 'no such move' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_move';
    END IF;
    IF new_state = 'rejected' AND (by_person IS NULL OR lower(by_person) = lower(r.requested_by)) THEN
        RAISE EXCEPTION 'the requester cannot reject' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_requests_two_persons';
    END IF;
    UPDATE backbone.redaction_requests q
    SET state = new_state, revision = q.revision + 1, attempts = 0, last_error = NULL, updated_at = clock_timestamp(),
        scope = CASE WHEN new_state = 'previewed' THEN new_scope ELSE q.scope END,
        preview = CASE WHEN new_state = 'previewed' THEN new_preview ELSE q.preview END,
        approved_by = CASE WHEN new_state = 'previewed' THEN NULL ELSE q.approved_by END,
        approved_at = CASE WHEN new_state = 'previewed' THEN NULL ELSE q.approved_at END,
        ended_by = by_person, end_reason = why,
        results = coalesce(new_results, q.results),
        completed_at = CASE WHEN new_state = 'completed' THEN clock_timestamp() END
    WHERE q.partition_id = of_partition_id AND q.id = of_id
    RETURNING * INTO r;
    RETURN NEXT r;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION backbone.note_redaction_failure(of_partition_id integer, of_id uuid, code text) RETURNS integer
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    failed integer;
BEGIN
    UPDATE backbone.redaction_requests q SET attempts = q.attempts + 1, last_error = code, updated_at = clock_timestamp()
    WHERE q.partition_id = of_partition_id AND q.id = of_id
    RETURNING q.attempts INTO failed;
    RETURN coalesce(failed, 0);
END
$$;
-- +goose StatementEnd

-- Stores the approval of a second person for what was previewed. The table's constraint repeats
-- the comparison of the persons, for any other writer.
-- +goose StatementBegin
CREATE FUNCTION backbone.approve_redaction(of_partition_id integer, of_id uuid, new_person text, of_scope bytea)
    RETURNS SETOF backbone.redaction_requests
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r backbone.redaction_requests;
BEGIN
    r := backbone.lock_redaction(of_partition_id, of_id);
    IF new_person IS NULL OR lower(new_person) = lower(r.requested_by) THEN
        RAISE EXCEPTION 'the requester cannot approve' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_requests_two_persons';
    END IF;
    IF r.state = 'approved' AND r.approved_by = new_person AND r.scope = of_scope THEN
        RETURN NEXT r; -- a repeat
        RETURN;
    END IF;
    IF r.state <> 'previewed' THEN
        RAISE EXCEPTION 'it does not wait for an approval' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_move';
    ELSIF of_scope IS NULL OR r.scope <> of_scope THEN
        RAISE EXCEPTION 'not what was previewed' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_scope';
    END IF;
    UPDATE backbone.redaction_requests q
    SET state = 'approved', revision = q.revision + 1, attempts = 0, last_error = NULL, updated_at = clock_timestamp(),
        approved_by = new_person, approved_at = clock_timestamp()
    WHERE q.partition_id = of_partition_id AND q.id = of_id
    RETURNING * INTO r;
    RETURN NEXT r;
END
$$;
-- +goose StatementEnd

-- Replaces the payload of one event by the same one with "[REDACTED]" at the pointers, under a
-- new salt, and moves the request to redacted, all in one transaction. It demands the request
-- in state approved: another person approved it, for this event, these pointers and this
-- payload, in the last 72 hours. For a request that was carried out it returns that redaction.
-- The frozen format of the hash: SHA-256(L(domain) || salt || payload).
-- +goose StatementBegin
CREATE FUNCTION backbone.redact_payload(
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
        IF jsonb_typeof(document #> path) = 'number' THEN
            RAISE EXCEPTION 'a number' USING ERRCODE = 'check_violation', CONSTRAINT = 'redaction_number';
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

-- Marks the events that were redacted before payloads had a mark.
-- +goose StatementBegin
CREATE FUNCTION backbone.mark_redactions() RETURNS void
    LANGUAGE sql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE backbone.event_payloads p SET redactions = m.redactions
    FROM (
        SELECT r.partition_id, r.sequence,
            json_agg(json_build_object('request', r.id, 'pointers', r.pointers, 'at', r.redacted_at) ORDER BY r.redacted_at, r.id) AS redactions
        FROM backbone.pii_redactions r GROUP BY r.partition_id, r.sequence) m
    WHERE p.partition_id = m.partition_id AND p.sequence = m.sequence;
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION backbone.redaction_can_become(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.lock_redaction(integer, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.request_redaction(integer, uuid, bigint, text[], text, text, bytea, json) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.move_redaction(integer, uuid, integer, text, bytea, json, text, text, json) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.note_redaction_failure(integer, uuid, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.approve_redaction(integer, uuid, text, bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.mark_redactions() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.request_redaction(integer, uuid, bigint, text[], text, text, bytea, json) TO backbone_eraser;
GRANT EXECUTE ON FUNCTION backbone.move_redaction(integer, uuid, integer, text, bytea, json, text, text, json) TO backbone_eraser;
GRANT EXECUTE ON FUNCTION backbone.note_redaction_failure(integer, uuid, text) TO backbone_eraser;
GRANT EXECUTE ON FUNCTION backbone.approve_redaction(integer, uuid, text, bytea) TO backbone_eraser;
GRANT EXECUTE ON FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) TO backbone_eraser;

-- Verification compares redactions with their requests.
GRANT SELECT ON backbone.redaction_requests TO backbone_app, backbone_reader;

GRANT UPDATE (redactions) ON backbone.event_payloads TO backbone_redactor;
GRANT UPDATE (state, revision, attempts, last_error, updated_at) ON backbone.redaction_requests TO backbone_redactor;
GRANT CREATE ON SCHEMA backbone TO backbone_redactor;
ALTER FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) OWNER TO backbone_redactor;
ALTER FUNCTION backbone.mark_redactions() OWNER TO backbone_redactor;
REVOKE CREATE ON SCHEMA backbone FROM backbone_redactor;
SELECT backbone.mark_redactions();
DROP FUNCTION backbone.mark_redactions();
