-- +goose Up

-- The change of KEK epochs, exports of the store, and the restore of keys from them; for
-- the eraser alone. Every function may be repeated.

-- +goose StatementBegin
CREATE FUNCTION keystore.keks(for_tenant_id text) RETURNS SETOF keystore.tenant_keks
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT t.* FROM keystore.tenant_keks t WHERE for_tenant_id = '' OR t.tenant_id = for_tenant_id ORDER BY t.tenant_id, t.epoch;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.add_kek(new_tenant_id text, new_epoch integer, new_kms_key_id text) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    newest integer;
BEGIN
    SELECT coalesce(max(t.epoch), 0) INTO newest FROM keystore.tenant_keks t WHERE t.tenant_id = new_tenant_id;
    IF new_epoch = newest + 1 THEN
        INSERT INTO keystore.tenant_keks (tenant_id, epoch, kms_key_id, state, created_at)
        VALUES (new_tenant_id, new_epoch, new_kms_key_id, 'pending', clock_timestamp())
        ON CONFLICT ON CONSTRAINT tenant_keks_pkey DO NOTHING;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM keystore.tenant_keks t WHERE t.tenant_id = new_tenant_id AND t.epoch = new_epoch AND t.kms_key_id = new_kms_key_id) THEN
        PERFORM keystore.refuse('keys.epoch_taken');
    END IF;
END
$$;
-- +goose StatementEnd

-- Mints lock the active epoch's row FOR SHARE, so that this function waits for them, and no
-- later mint finds the epoch active.
-- +goose StatementBegin
CREATE FUNCTION keystore.activate_kek(of_tenant_id text, of_epoch integer) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stands text;
BEGIN
    PERFORM FROM keystore.tenant_keks t WHERE t.tenant_id = of_tenant_id ORDER BY t.epoch FOR NO KEY UPDATE;
    SELECT t.state INTO stands FROM keystore.tenant_keks t WHERE t.tenant_id = of_tenant_id AND t.epoch = of_epoch;
    IF stands = 'active' THEN
        RETURN; -- a repeat
    ELSIF stands IS NULL THEN
        PERFORM keystore.refuse('keys.epoch_missing');
    ELSIF stands <> 'pending' OR EXISTS (SELECT FROM keystore.tenant_keks t WHERE t.tenant_id = of_tenant_id AND t.state = 'draining') THEN
        PERFORM keystore.refuse('keys.move_refused');
    END IF;
    UPDATE keystore.tenant_keks t SET state = 'draining', drained_at = clock_timestamp() WHERE t.tenant_id = of_tenant_id AND t.state = 'active';
    UPDATE keystore.tenant_keks t SET state = 'active', activated_at = clock_timestamp() WHERE t.tenant_id = of_tenant_id AND t.epoch = of_epoch;
END
$$;
-- +goose StatementEnd

-- Rows that are wrapped with an epoch, in any order; partition 0 is a tenant's secret.
-- +goose StatementBegin
CREATE FUNCTION keystore.wrapped_with(for_tenant_id text, for_epoch integer, page_size integer) RETURNS TABLE (
    partition_id integer, reference uuid, version integer, kek_epoch integer, kms_key_id text, wrapped bytea, fingerprint bytea
)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT w.partition_id, w.reference, w.version, for_epoch, t.kms_key_id, w.wrapped, w.fingerprint
    FROM keystore.tenant_keks t
    CROSS JOIN LATERAL (
        SELECT s.partition_id, d.key_ref AS reference, s.version, s.wrapped, s.fingerprint
        FROM keystore.data_subject_keys s
        CROSS JOIN LATERAL (
            SELECT x.key_ref FROM keystore.data_subjects x
            WHERE x.partition_id = s.partition_id AND x.subject_id = s.subject_id AND x.class = s.class
            LIMIT 1
        ) AS d
        WHERE s.tenant_id = for_tenant_id AND s.kek_epoch = for_epoch
        UNION ALL
        SELECT 0, x.secret_ref, x.version, x.wrapped, x.fingerprint
        FROM keystore.tenant_secrets x
        WHERE x.tenant_id = for_tenant_id AND x.kek_epoch = for_epoch
    ) AS w
    WHERE t.tenant_id = for_tenant_id AND t.epoch = for_epoch
    LIMIT page_size;
END
$$;
-- +goose StatementEnd

-- Random rows of an epoch. It reads all of them, without their wrappings.
-- +goose StatementBegin
CREATE FUNCTION keystore.sample_wrapped_with(for_tenant_id text, for_epoch integer, page_size integer) RETURNS TABLE (
    partition_id integer, reference uuid, version integer, kek_epoch integer, kms_key_id text, wrapped bytea, fingerprint bytea
)
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT w.partition_id, coalesce(d.key_ref, x.secret_ref), w.version, for_epoch, t.kms_key_id, coalesce(k.wrapped, x.wrapped), coalesce(k.fingerprint, x.fingerprint)
    FROM (
        SELECT u.* FROM (
            SELECT s.partition_id, s.subject_id, s.class, s.version, NULL AS purpose
            FROM keystore.data_subject_keys s WHERE s.tenant_id = for_tenant_id AND s.kek_epoch = for_epoch
            UNION ALL
            SELECT 0, NULL, NULL, s.version, s.purpose
            FROM keystore.tenant_secrets s WHERE s.tenant_id = for_tenant_id AND s.kek_epoch = for_epoch
        ) AS u
        ORDER BY random()
        LIMIT page_size
    ) AS w
    JOIN keystore.tenant_keks t ON t.tenant_id = for_tenant_id AND t.epoch = for_epoch
    LEFT JOIN keystore.data_subjects d ON d.partition_id = w.partition_id AND d.subject_id = w.subject_id AND d.class = w.class
    LEFT JOIN keystore.data_subject_keys k ON k.partition_id = w.partition_id AND k.subject_id = w.subject_id AND k.class = w.class AND k.version = w.version
    LEFT JOIN keystore.tenant_secrets x ON x.tenant_id = for_tenant_id AND x.purpose = w.purpose;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.count_wrapped_with(for_tenant_id text, for_epoch integer) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT count(*) FROM keystore.data_subject_keys s WHERE s.tenant_id = for_tenant_id AND s.kek_epoch = for_epoch)
         + (SELECT count(*) FROM keystore.tenant_secrets s WHERE s.tenant_id = for_tenant_id AND s.kek_epoch = for_epoch);
END
$$;
-- +goose StatementEnd

-- Skips rows that an erasure is deleting, so that neither waits for the other; the next
-- page finds the rows that are left.
-- +goose StatementBegin
CREATE FUNCTION keystore.save_rewrapped(
    of_tenant_id text, from_epoch integer, to_epoch integer, refs uuid[], versions integer[], wrappings bytea[]
) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    w       record;
    changed bigint := 0;
BEGIN
    PERFORM FROM keystore.tenant_keks t WHERE t.tenant_id = of_tenant_id AND t.epoch = to_epoch AND t.state = 'active' FOR SHARE;
    IF NOT FOUND THEN
        PERFORM keystore.refuse('keys.epoch_closed');
    END IF;
    FOR w IN
        SELECT u.reference, u.version, u.wrapped FROM unnest(refs, versions, wrappings) AS u (reference, version, wrapped)
    LOOP
        PERFORM FROM keystore.data_subjects d
        JOIN keystore.data_subject_keys s ON s.partition_id = d.partition_id AND s.subject_id = d.subject_id AND s.class = d.class
        WHERE d.key_ref = w.reference AND s.version = w.version AND s.tenant_id = of_tenant_id AND s.kek_epoch = from_epoch
        FOR UPDATE OF s SKIP LOCKED;
        IF FOUND THEN
            UPDATE keystore.data_subject_keys s SET wrapped = w.wrapped, kek_epoch = to_epoch
            FROM keystore.data_subjects d
            WHERE d.key_ref = w.reference AND s.partition_id = d.partition_id AND s.subject_id = d.subject_id AND s.class = d.class
              AND s.version = w.version AND s.tenant_id = of_tenant_id AND s.kek_epoch = from_epoch;
        ELSE
            UPDATE keystore.tenant_secrets s SET wrapped = w.wrapped, kek_epoch = to_epoch
            WHERE s.secret_ref = w.reference AND s.version = w.version AND s.tenant_id = of_tenant_id AND s.kek_epoch = from_epoch;
        END IF;
        IF FOUND THEN
            changed := changed + 1;
        END IF;
    END LOOP;
    RETURN changed;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.close_kek(of_tenant_id text, of_epoch integer, new_state text) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stands text;
BEGIN
    SELECT t.state INTO stands FROM keystore.tenant_keks t WHERE t.tenant_id = of_tenant_id AND t.epoch = of_epoch FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM keystore.refuse('keys.epoch_missing');
    ELSIF stands = new_state AND new_state IN ('deleting', 'deleted') THEN
        RETURN; -- a repeat
    ELSIF stands || '>' || new_state NOT IN ('draining>deleting', 'deleting>deleted') THEN
        PERFORM keystore.refuse('keys.move_refused');
    ELSIF new_state = 'deleting' AND keystore.count_wrapped_with(of_tenant_id, of_epoch) > 0 THEN
        PERFORM keystore.refuse('keys.epoch_in_use');
    END IF;
    UPDATE keystore.tenant_keks t
    SET state = new_state,
        deleting_at = CASE WHEN new_state = 'deleting' THEN clock_timestamp() ELSE t.deleting_at END,
        deleted_at = CASE WHEN new_state = 'deleted' THEN clock_timestamp() ELSE t.deleted_at END
    WHERE t.tenant_id = of_tenant_id AND t.epoch = of_epoch;
END
$$;
-- +goose StatementEnd

-- Every line names its table. STABLE: all lines are as of one moment. Rows come before
-- those that refer to them.
-- +goose StatementBegin
CREATE FUNCTION keystore.export_lines() RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT json_build_object('table', 'tenant_keks', 'row', row_to_json(t))::text FROM keystore.tenant_keks t ORDER BY t.tenant_id, t.epoch;
    RETURN QUERY SELECT json_build_object('table', 'data_subjects', 'row', row_to_json(t))::text FROM keystore.data_subjects t;
    RETURN QUERY SELECT json_build_object('table', 'data_subject_keys', 'row', row_to_json(t))::text FROM keystore.data_subject_keys t;
    RETURN QUERY SELECT json_build_object('table', 'tenant_secrets', 'row', row_to_json(t))::text FROM keystore.tenant_secrets t;
    RETURN QUERY SELECT json_build_object('table', 'subject_fences', 'row', row_to_json(t))::text FROM keystore.subject_fences t;
    RETURN QUERY SELECT json_build_object('table', 'legal_holds', 'row', row_to_json(t))::text FROM keystore.legal_holds t;
    RETURN QUERY SELECT json_build_object('table', 'pii_deletion_log', 'row', row_to_json(t))::text FROM keystore.pii_deletion_log t;
    RETURN QUERY SELECT json_build_object('table', 'pii_deletion_approvals', 'row', row_to_json(t))::text FROM keystore.pii_deletion_approvals t;
    RETURN QUERY SELECT json_build_object('table', 'pii_deletion_steps', 'row', row_to_json(t))::text FROM keystore.pii_deletion_steps t;
    RETURN QUERY SELECT json_build_object('table', 'erasure_receipts', 'row', row_to_json(t))::text FROM keystore.erasure_receipts t ORDER BY t.number;
    RETURN QUERY SELECT json_build_object('table', 'generation', 'row', row_to_json(t))::text FROM keystore.generation t;
END
$$;
-- +goose StatementEnd

-- Creates scratch tables like the store's own, for this transaction. Lines that cannot be
-- restored do not fit into them. They belong to the store's owner, so that only these
-- functions can use them.
-- +goose StatementBegin
CREATE FUNCTION keystore.open_scratch() RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CREATE TEMPORARY TABLE scratch_keks (LIKE keystore.tenant_keks INCLUDING ALL) ON COMMIT DROP;
    CREATE TEMPORARY TABLE scratch_subjects (LIKE keystore.data_subjects INCLUDING ALL) ON COMMIT DROP;
    CREATE TEMPORARY TABLE scratch_keys (LIKE keystore.data_subject_keys INCLUDING ALL) ON COMMIT DROP;
    CREATE TEMPORARY TABLE scratch_secrets (LIKE keystore.tenant_secrets INCLUDING ALL) ON COMMIT DROP;
END
$$;
-- +goose StatementEnd

-- Requires that the scratch tables are those of open_scratch. The caller could have
-- replaced them by a view or a table with triggers, whose code the functions below would
-- run as the store's owner.
-- +goose StatementBegin
CREATE FUNCTION keystore.check_scratch() RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (SELECT count(*) FROM pg_class c
        WHERE c.relnamespace = pg_my_temp_schema() AND c.relname IN ('scratch_keks', 'scratch_subjects', 'scratch_keys', 'scratch_secrets')
          AND c.relkind = 'r' AND c.relowner = (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user)) <> 4 THEN
        PERFORM keystore.refuse('keys.request_invalid');
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.load_scratch(lines text[]) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entries json[];
BEGIN
    PERFORM keystore.check_scratch();
    SELECT array_agg(u.line::json) INTO entries FROM unnest(lines) AS u (line);
    INSERT INTO pg_temp.scratch_keks
    SELECT (json_populate_record(NULL::keystore.tenant_keks, e.entry -> 'row')).* FROM unnest(entries) AS e (entry) WHERE e.entry ->> 'table' = 'tenant_keks';
    INSERT INTO pg_temp.scratch_subjects
    SELECT (json_populate_record(NULL::keystore.data_subjects, e.entry -> 'row')).* FROM unnest(entries) AS e (entry) WHERE e.entry ->> 'table' = 'data_subjects';
    INSERT INTO pg_temp.scratch_keys
    SELECT (json_populate_record(NULL::keystore.data_subject_keys, e.entry -> 'row')).* FROM unnest(entries) AS e (entry) WHERE e.entry ->> 'table' = 'data_subject_keys';
    INSERT INTO pg_temp.scratch_secrets
    SELECT (json_populate_record(NULL::keystore.tenant_secrets, e.entry -> 'row')).* FROM unnest(entries) AS e (entry) WHERE e.entry ->> 'table' = 'tenant_secrets';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.scratch_keks_list() RETURNS SETOF keystore.tenant_keks
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM keystore.check_scratch();
    RETURN QUERY SELECT t.* FROM pg_temp.scratch_keks t ORDER BY t.tenant_id, t.epoch;
END
$$;
-- +goose StatementEnd

-- Random rows of an epoch as the export holds them; total is the same in every row,
-- and the only thing in the one row of an epoch without rows.
-- +goose StatementBegin
CREATE FUNCTION keystore.sample_scratch(for_tenant_id text, for_epoch integer, page_size integer) RETURNS TABLE (
    total bigint, partition_id integer, reference uuid, version integer, kek_epoch integer, kms_key_id text, wrapped bytea, fingerprint bytea
)
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM keystore.check_scratch();
    RETURN QUERY
    WITH held AS (
        SELECT s.partition_id, d.key_ref AS reference, s.version, s.wrapped, s.fingerprint
        FROM pg_temp.scratch_keys s
        JOIN pg_temp.scratch_subjects d ON d.partition_id = s.partition_id AND d.subject_id = s.subject_id AND d.class = s.class AND d.state = 'active'
        WHERE s.tenant_id = for_tenant_id AND s.kek_epoch = for_epoch
        UNION ALL
        SELECT 0, x.secret_ref, x.version, x.wrapped, x.fingerprint
        FROM pg_temp.scratch_secrets x
        WHERE x.tenant_id = for_tenant_id AND x.kek_epoch = for_epoch
    ), sample AS (
        SELECT h.* FROM held h ORDER BY random() LIMIT page_size
    )
    SELECT (SELECT count(*) FROM held), coalesce(w.partition_id, 0), w.reference, coalesce(w.version, 0), for_epoch, coalesce(t.kms_key_id, ''), w.wrapped, w.fingerprint
    FROM (SELECT 1) AS one
    LEFT JOIN sample w ON true
    LEFT JOIN pg_temp.scratch_keks t ON t.tenant_id = for_tenant_id AND t.epoch = for_epoch;
END
$$;
-- +goose StatementEnd

-- Takes from the scratch tables the rows that the store lacks or has under a dead KEK. The
-- states of KEKs only advance. Destroyed keys stay destroyed.
-- +goose StatementBegin
CREATE FUNCTION keystore.restore_scratch(dead_tenants text[], dead_epochs integer[]) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ways  CONSTANT text[] := ARRAY['pending', 'active', 'draining', 'deleting', 'deleted'];
    w     record;
    taken bigint := 0;
    n     bigint;
BEGIN
    PERFORM keystore.check_scratch();
    LOCK TABLE keystore.tenant_keks, keystore.data_subjects, keystore.data_subject_keys, keystore.tenant_secrets IN SHARE ROW EXCLUSIVE MODE;
    CREATE TEMPORARY TABLE scratch_dead ON COMMIT DROP AS
        SELECT DISTINCT u.tenant_id, u.epoch FROM unnest(dead_tenants, dead_epochs) AS u (tenant_id, epoch);
    -- Ascending, so that an epoch has left its state before the next one takes it.
    FOR w IN
        SELECT coalesce(x.tenant_id, t.tenant_id) AS tenant_id, coalesce(x.epoch, t.epoch) AS epoch, coalesce(x.kms_key_id, t.kms_key_id) AS kms_key_id,
            coalesce(x.created_at, t.created_at) AS created_at,
            ways[greatest(coalesce(array_position(ways, x.state), 1), coalesce(array_position(ways, t.state), 1),
                CASE WHEN g.epoch IS NOT NULL THEN 4 ELSE 1 END)] AS state
        FROM pg_temp.scratch_keks x
        FULL JOIN keystore.tenant_keks t ON t.tenant_id = x.tenant_id AND t.epoch = x.epoch
        LEFT JOIN pg_temp.scratch_dead g ON g.tenant_id = coalesce(x.tenant_id, t.tenant_id) AND g.epoch = coalesce(x.epoch, t.epoch)
        ORDER BY 1, 2
    LOOP
        INSERT INTO keystore.tenant_keks AS t (tenant_id, epoch, kms_key_id, state, created_at)
        VALUES (w.tenant_id, w.epoch, w.kms_key_id, w.state, w.created_at)
        ON CONFLICT ON CONSTRAINT tenant_keks_pkey DO UPDATE SET state = excluded.state WHERE t.state <> excluded.state;
    END LOOP;

    INSERT INTO keystore.data_subjects SELECT x.* FROM pg_temp.scratch_subjects x ON CONFLICT DO NOTHING;
    INSERT INTO keystore.data_subject_keys AS k
    SELECT x.*
    FROM pg_temp.scratch_keys x
    JOIN pg_temp.scratch_subjects y ON y.partition_id = x.partition_id AND y.subject_id = x.subject_id AND y.class = x.class
    JOIN keystore.data_subjects d ON d.partition_id = x.partition_id AND d.subject_id = x.subject_id AND d.class = x.class
        AND d.state = 'active' AND d.key_ref = y.key_ref -- what the wrapping is bound to
    WHERE NOT EXISTS (SELECT FROM pg_temp.scratch_dead g WHERE g.tenant_id = x.tenant_id AND g.epoch = x.kek_epoch)
    ON CONFLICT ON CONSTRAINT data_subject_keys_pkey DO UPDATE
    SET wrapped = excluded.wrapped, kek_epoch = excluded.kek_epoch, fingerprint = excluded.fingerprint
    WHERE EXISTS (SELECT FROM pg_temp.scratch_dead g WHERE g.tenant_id = k.tenant_id AND g.epoch = k.kek_epoch);
    GET DIAGNOSTICS taken = ROW_COUNT;
    UPDATE keystore.data_subjects d SET active_version = x.active_version
    FROM pg_temp.scratch_subjects x
    WHERE d.partition_id = x.partition_id AND d.subject_id = x.subject_id AND d.class = x.class
      AND d.state = 'active' AND d.key_ref = x.key_ref AND x.active_version > d.active_version
      AND EXISTS (SELECT FROM keystore.data_subject_keys k WHERE k.partition_id = d.partition_id AND k.subject_id = d.subject_id
                  AND k.class = d.class AND k.version = x.active_version);

    INSERT INTO keystore.tenant_secrets AS k
    SELECT x.* FROM pg_temp.scratch_secrets x
    WHERE NOT EXISTS (SELECT FROM pg_temp.scratch_dead g WHERE g.tenant_id = x.tenant_id AND g.epoch = x.kek_epoch)
    ON CONFLICT ON CONSTRAINT tenant_secrets_pkey DO UPDATE
    SET wrapped = excluded.wrapped, kek_epoch = excluded.kek_epoch, fingerprint = excluded.fingerprint, version = excluded.version, secret_ref = excluded.secret_ref
    WHERE EXISTS (SELECT FROM pg_temp.scratch_dead g WHERE g.tenant_id = k.tenant_id AND g.epoch = k.kek_epoch);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN taken + n;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA keystore FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    keystore.keks(text),
    keystore.add_kek(text, integer, text),
    keystore.activate_kek(text, integer),
    keystore.wrapped_with(text, integer, integer),
    keystore.sample_wrapped_with(text, integer, integer),
    keystore.count_wrapped_with(text, integer),
    keystore.save_rewrapped(text, integer, integer, uuid[], integer[], bytea[]),
    keystore.close_kek(text, integer, text),
    keystore.export_lines(),
    keystore.open_scratch(),
    keystore.load_scratch(text[]),
    keystore.scratch_keks_list(),
    keystore.sample_scratch(text, integer, integer),
    keystore.restore_scratch(text[], integer[])
    TO backbone_eraser;
