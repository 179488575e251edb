-- +goose Up

-- The erasure of persons, for the eraser alone. The server's role can execute none of
-- these functions. Each checks the transition that it makes and does not repeat a step
-- that is done. They lock in the order request, subjects, generation.

-- The transitions of a request. A test compares them with those of the domain.
-- +goose StatementBegin
CREATE FUNCTION keystore.erasure_can_become(from_state text, to_state text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN from_state || '>' || to_state IN (
        'requested>previewed', 'previewed>approved', 'approved>fenced', 'fenced>destroyed', 'destroyed>receipted', 'receipted>announced',
        'announced>evicted', 'evicted>rebuilt', 'rebuilt>verified', 'verified>completed',
        'requested>rejected', 'requested>withdrawn', 'requested>refused',
        'previewed>rejected', 'previewed>withdrawn', 'previewed>refused',
        'approved>previewed', 'approved>withdrawn', 'approved>expired', 'approved>refused',
        'fenced>refused');
END
$$;
-- +goose StatementEnd

-- Whether a hold is in force today on any of the partitions.
-- +goose StatementBegin
CREATE FUNCTION keystore.is_held(for_tenant_id text, for_subject_id text, for_partitions integer[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM keystore.legal_holds h
        WHERE h.tenant_id = for_tenant_id AND h.subject_id = for_subject_id AND h.released_at IS NULL
          AND (h.until IS NULL OR h.until >= (clock_timestamp() AT TIME ZONE 'UTC')::date)
          AND (h.partition_id = 0 OR h.partition_id = ANY (for_partitions)));
END
$$;
-- +goose StatementEnd

-- Ends a change of a request: next revision, no failed attempts, one journal row.
-- +goose StatementBegin
CREATE FUNCTION keystore.reach(of_request_id uuid, new_state text, by_person text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    failed integer;
    now_at integer;
BEGIN
    SELECT l.attempts INTO STRICT failed FROM keystore.pii_deletion_log l WHERE l.request_id = of_request_id;
    UPDATE keystore.pii_deletion_log l
    SET state = new_state, revision = l.revision + 1, attempts = 0, last_error = NULL, updated_at = clock_timestamp()
    WHERE l.request_id = of_request_id
    RETURNING l.revision INTO STRICT now_at;
    INSERT INTO keystore.pii_deletion_steps (request_id, revision, done_at, attempts, state, person)
    VALUES (of_request_id, now_at, clock_timestamp(), failed, new_state, by_person);
END
$$;
-- +goose StatementEnd

-- Locks a request and returns it.
-- +goose StatementBegin
CREATE FUNCTION keystore.lock_erasure(of_request_id uuid) RETURNS keystore.pii_deletion_log
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r keystore.pii_deletion_log;
BEGIN
    SELECT l.* INTO r FROM keystore.pii_deletion_log l WHERE l.request_id = of_request_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM keystore.refuse('erasure.not_found');
    END IF;
    RETURN r;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.request_erasure(
    new_request_id uuid, new_tenant_id text, new_subject_id text, new_partitions integer[], new_all_entities boolean,
    new_basis text, new_reason text, new_requester text, new_requested_at timestamptz, new_due_on date
) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stands keystore.pii_deletion_log;
BEGIN
    FOR try IN 1 .. 3 LOOP
        INSERT INTO keystore.pii_deletion_log (request_id, requested_at, updated_at, due_on, revision, all_entities, tenant_id, subject_id,
            basis, reason, requester_person, state, partitions)
        VALUES (new_request_id, new_requested_at, clock_timestamp(), new_due_on, 1, new_all_entities, new_tenant_id, new_subject_id,
            new_basis, new_reason, new_requester, 'requested', new_partitions)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            INSERT INTO keystore.pii_deletion_steps (request_id, revision, done_at, attempts, state, person)
            VALUES (new_request_id, 1, clock_timestamp(), 0, 'requested', new_requester);
            RETURN;
        END IF;
        SELECT l.* INTO stands FROM keystore.pii_deletion_log l WHERE l.request_id = new_request_id;
        IF FOUND THEN
            IF stands.tenant_id = new_tenant_id AND stands.subject_id = new_subject_id AND stands.requester_person = new_requester
                AND stands.basis = new_basis AND stands.reason = new_reason AND stands.due_on = new_due_on THEN
                RETURN;
            END IF;
            PERFORM keystore.refuse('erasure.changed');
        END IF;
        SELECT l.* INTO stands FROM keystore.pii_deletion_log l
        WHERE l.tenant_id = new_tenant_id AND l.subject_id = new_subject_id
          AND l.state NOT IN ('completed', 'rejected', 'withdrawn', 'expired', 'refused');
        IF FOUND THEN
            PERFORM keystore.refuse('erasure.duplicate', stands.request_id::text);
        END IF;
    END LOOP;
    PERFORM keystore.refuse('erasure.changed');
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.erasure(for_tenant_id text, for_request_id uuid) RETURNS SETOF keystore.pii_deletion_log
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l
    WHERE l.request_id = for_request_id AND (for_tenant_id = '' OR l.tenant_id = for_tenant_id);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.erasures(for_tenant_id text, for_states text[], page_size integer) RETURNS SETOF keystore.pii_deletion_log
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    -- State by state along the index: nothing that is not listed is read, however many
    -- have ended.
    IF for_tenant_id = '' AND cardinality(for_states) > 0 THEN
        RETURN QUERY SELECT l.*
        FROM (SELECT DISTINCT u.state FROM unnest(for_states) AS u (state)) AS s
        CROSS JOIN LATERAL (
            SELECT x.* FROM keystore.pii_deletion_log x WHERE x.state = s.state
            ORDER BY x.requested_at DESC, x.request_id DESC
            LIMIT page_size
        ) AS l
        ORDER BY l.requested_at DESC, l.request_id DESC
        LIMIT page_size;
    ELSIF for_tenant_id = '' THEN
        RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l ORDER BY l.requested_at DESC, l.request_id DESC LIMIT page_size;
    ELSE
        RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l
        WHERE l.tenant_id = for_tenant_id AND (cardinality(for_states) = 0 OR l.state = ANY (for_states))
        ORDER BY l.requested_at DESC, l.request_id DESC
        LIMIT page_size;
    END IF;
END
$$;
-- +goose StatementEnd

-- The steps of a request, in order.
-- +goose StatementBegin
CREATE FUNCTION keystore.erasure_steps(for_tenant_id text, for_request_id uuid) RETURNS TABLE (state text, done_at timestamptz, attempts integer)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY SELECT s.state, s.done_at, s.attempts
    FROM keystore.pii_deletion_steps s JOIN keystore.pii_deletion_log l ON l.request_id = s.request_id
    WHERE s.request_id = for_request_id AND (for_tenant_id = '' OR l.tenant_id = for_tenant_id)
    ORDER BY s.revision;
END
$$;
-- +goose StatementEnd

-- Stores a request in its next state. Only a preview changes partitions and scope, and it
-- removes the approval.
-- +goose StatementBegin
CREATE FUNCTION keystore.move_erasure(
    of_request_id uuid, from_revision integer, new_state text, new_partitions integer[], new_scope bytea, new_preview json,
    new_ended_by text, new_end_reason text, new_classes json, new_evicted_at timestamptz, new_completed_at timestamptz, new_results json
) RETURNS SETOF keystore.pii_deletion_log
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r keystore.pii_deletion_log;
BEGIN
    r := keystore.lock_erasure(of_request_id);
    IF r.revision = from_revision + 1 AND r.state = new_state
        AND r.scope IS NOT DISTINCT FROM new_scope AND r.preview::text IS NOT DISTINCT FROM new_preview::text
        AND r.ended_by IS NOT DISTINCT FROM new_ended_by AND r.end_reason IS NOT DISTINCT FROM new_end_reason
        AND r.evicted_at IS NOT DISTINCT FROM new_evicted_at AND r.completed_at IS NOT DISTINCT FROM new_completed_at
        AND r.results::text IS NOT DISTINCT FROM new_results::text THEN
        RETURN NEXT r; -- a repeat
        RETURN;
    END IF;
    IF r.revision <> from_revision THEN
        PERFORM keystore.refuse('erasure.changed');
    END IF;
    IF NOT keystore.erasure_can_become(r.state, new_state) OR new_state IN ('approved', 'fenced', 'destroyed')
        OR new_state = 'refused' AND r.state = 'fenced' OR new_state = 'previewed' AND new_scope IS NULL
        -- No request goes on before its receipt is outside the database.
        OR new_state = 'receipted' AND NOT EXISTS (
            SELECT FROM keystore.erasure_receipts e WHERE e.request_id = of_request_id AND e.note IS NOT NULL AND e.exported)
        -- By this clock, whatever the caller's says: while a cached key may live, all
        -- nodes that were there at the destruction have forgotten it.
        OR new_state = 'evicted' AND clock_timestamp() < r.destroyed_at + interval '60 seconds' AND EXISTS (
            SELECT FROM keystore.nodes n WHERE n.seen_at >= r.destroyed_at - interval '2 minutes' AND n.generation < r.generation) THEN
        PERFORM keystore.refuse('erasure.move_refused');
    END IF;
    UPDATE keystore.pii_deletion_log l
    SET partitions = CASE WHEN new_state = 'previewed' THEN new_partitions ELSE l.partitions END,
        scope = CASE WHEN new_state = 'previewed' THEN new_scope ELSE l.scope END,
        preview = CASE WHEN new_state = 'previewed' THEN new_preview ELSE l.preview END,
        approver_person = CASE WHEN new_state = 'previewed' THEN NULL ELSE l.approver_person END,
        approved_at = CASE WHEN new_state = 'previewed' THEN NULL ELSE l.approved_at END,
        classes = CASE WHEN r.state IN ('requested', 'previewed', 'approved') THEN new_classes ELSE l.classes END,
        ended_by = new_ended_by, end_reason = new_end_reason,
        evicted_at = new_evicted_at, completed_at = new_completed_at, results = new_results
    WHERE l.request_id = of_request_id;
    PERFORM keystore.reach(of_request_id, new_state, new_ended_by);
    RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l WHERE l.request_id = of_request_id;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.note_erasure_failure(of_request_id uuid, code text) RETURNS integer
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    failed integer;
BEGIN
    UPDATE keystore.pii_deletion_log l SET attempts = l.attempts + 1, last_error = code, updated_at = clock_timestamp()
    WHERE l.request_id = of_request_id
    RETURNING l.attempts INTO failed;
    IF NOT FOUND THEN
        PERFORM keystore.refuse('erasure.not_found');
    END IF;
    RETURN failed;
END
$$;
-- +goose StatementEnd

-- Stores the approval of a second person. The approval's check constraint repeats the
-- comparison of the function, for any other writer.
-- +goose StatementBegin
CREATE FUNCTION keystore.approve_erasure(of_request_id uuid, by_approver text, of_scope bytea, new_approved_at timestamptz)
    RETURNS SETOF keystore.pii_deletion_log
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r keystore.pii_deletion_log;
BEGIN
    r := keystore.lock_erasure(of_request_id);
    IF by_approver IS NULL OR by_approver = '' OR by_approver = r.requester_person THEN
        PERFORM keystore.refuse('erasure.same_person');
    END IF;
    IF r.state = 'approved' AND r.approver_person = by_approver AND r.scope = of_scope THEN
        RETURN NEXT r; -- a repeat
        RETURN;
    END IF;
    IF r.state <> 'previewed' THEN
        PERFORM keystore.refuse('erasure.move_refused');
    ELSIF of_scope IS NULL OR r.scope <> of_scope THEN
        PERFORM keystore.refuse('erasure.scope_changed');
    END IF;
    INSERT INTO keystore.pii_deletion_approvals (request_id, revision, approved_at, stored_at, requester_person, approver_person, scope)
    VALUES (of_request_id, r.revision + 1, new_approved_at, clock_timestamp(), r.requester_person, by_approver, of_scope);
    UPDATE keystore.pii_deletion_log l SET approver_person = by_approver, approved_at = new_approved_at WHERE l.request_id = of_request_id;
    PERFORM keystore.reach(of_request_id, 'approved', by_approver);
    RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l WHERE l.request_id = of_request_id;
END
$$;
-- +goose StatementEnd

-- Whether a subject has a key in one of the partitions that is another tenant's.
-- +goose StatementBegin
CREATE FUNCTION keystore.is_foreign(for_tenant_id text, for_subject_id text, for_partitions integer[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM keystore.data_subjects d
        WHERE d.partition_id = ANY (for_partitions) AND d.subject_id = for_subject_id AND d.tenant_id <> for_tenant_id);
END
$$;
-- +goose StatementEnd

-- Fences the subject, for the classes that are erased. It requires an approval of the same
-- scope that was stored in the last 72 hours by the database's clock.
-- +goose StatementBegin
CREATE FUNCTION keystore.fence_erasure(of_request_id uuid, from_revision integer, erased smallint[], new_classes json)
    RETURNS SETOF keystore.pii_deletion_log
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r keystore.pii_deletion_log;
BEGIN
    r := keystore.lock_erasure(of_request_id);
    IF r.state = 'fenced' AND r.revision = from_revision + 1 AND r.erased_classes = erased THEN
        RETURN NEXT r; -- a repeat
        RETURN;
    END IF;
    IF r.revision <> from_revision THEN
        PERFORM keystore.refuse('erasure.changed');
    ELSIF r.state <> 'approved' OR cardinality(erased) = 0 THEN
        PERFORM keystore.refuse('erasure.move_refused');
    ELSIF NOT EXISTS (
        SELECT FROM keystore.pii_deletion_approvals a
        WHERE a.request_id = of_request_id AND a.revision = r.revision AND a.scope = r.scope
          AND a.requester_person = r.requester_person AND a.stored_at > clock_timestamp() - interval '72 hours') THEN
        PERFORM keystore.refuse('erasure.approval_expired');
    ELSIF keystore.is_foreign(r.tenant_id, r.subject_id, r.partitions) THEN
        PERFORM keystore.refuse('keys.request_invalid');
    ELSIF keystore.is_held(r.tenant_id, r.subject_id, r.partitions) THEN
        PERFORM keystore.refuse('erasure.held');
    END IF;
    INSERT INTO keystore.subject_fences AS f (fenced_at, request_id, partition_id, class, subject_id)
    SELECT clock_timestamp(), of_request_id, p.partition_id, c.class, r.subject_id
    FROM unnest(r.partitions) AS p (partition_id), unnest(erased) AS c (class)
    ORDER BY 3, 4
    ON CONFLICT ON CONSTRAINT subject_fences_pkey DO UPDATE
    SET fenced_at = excluded.fenced_at, request_id = excluded.request_id, lifted_at = NULL
    WHERE f.lifted_at IS NOT NULL;
    UPDATE keystore.pii_deletion_log l SET erased_classes = erased, classes = new_classes WHERE l.request_id = of_request_id;
    PERFORM keystore.reach(of_request_id, 'fenced', NULL);
    RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l WHERE l.request_id = of_request_id;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.refuse_erasure(of_request_id uuid, from_revision integer, by_person text, why text, new_classes json)
    RETURNS SETOF keystore.pii_deletion_log
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r keystore.pii_deletion_log;
BEGIN
    r := keystore.lock_erasure(of_request_id);
    IF r.state = 'refused' AND r.revision = from_revision + 1 AND r.end_reason IS NOT DISTINCT FROM why THEN
        RETURN NEXT r; -- a repeat
        RETURN;
    END IF;
    IF r.revision <> from_revision THEN
        PERFORM keystore.refuse('erasure.changed');
    ELSIF NOT keystore.erasure_can_become(r.state, 'refused') THEN
        PERFORM keystore.refuse('erasure.move_refused');
    END IF;
    UPDATE keystore.subject_fences f SET lifted_at = clock_timestamp() WHERE f.request_id = of_request_id AND f.lifted_at IS NULL;
    UPDATE keystore.pii_deletion_log l SET ended_by = by_person, end_reason = why, classes = new_classes WHERE l.request_id = of_request_id;
    PERFORM keystore.reach(of_request_id, 'refused', by_person);
    RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l WHERE l.request_id = of_request_id;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA keystore FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    keystore.request_erasure(uuid, text, text, integer[], boolean, text, text, text, timestamptz, date),
    keystore.erasure(text, uuid),
    keystore.erasures(text, text[], integer),
    keystore.erasure_steps(text, uuid),
    keystore.move_erasure(uuid, integer, text, integer[], bytea, json, text, text, json, timestamptz, timestamptz, json),
    keystore.note_erasure_failure(uuid, text),
    keystore.approve_erasure(uuid, text, bytea, timestamptz),
    keystore.fence_erasure(uuid, integer, smallint[], json),
    keystore.refuse_erasure(uuid, integer, text, text, json)
    TO backbone_eraser;
