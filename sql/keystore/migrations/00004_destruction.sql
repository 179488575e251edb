-- +goose Up

-- The destruction of keys, its receipts, and the holds that forbid it.

-- Locks the given keys in key order, which waits for appends in flight, and inserts rows
-- of subjects that have none. It locks no key of another tenant.
-- +goose StatementBegin
CREATE FUNCTION keystore.lock_keys(of_tenant_id text, partition_ids integer[], subject_ids text[], classes smallint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    w record;
BEGIN
    FOR w IN
        SELECT u.partition_id, u.subject_id COLLATE "C" AS subject_id, u.class
        FROM unnest(partition_ids, subject_ids, classes) AS u (partition_id, subject_id, class)
        ORDER BY 1, 2, 3
    LOOP
        INSERT INTO keystore.data_subjects AS d
            (created_at, destroyed_at, key_ref, partition_id, active_version, class, tenant_id, subject_id, state)
        VALUES (now(), now(), gen_random_uuid(), w.partition_id, 0, w.class, of_tenant_id, w.subject_id, 'destroyed')
        ON CONFLICT ON CONSTRAINT data_subjects_pkey DO NOTHING;
        PERFORM FROM keystore.data_subjects d
        WHERE d.partition_id = w.partition_id AND d.subject_id = w.subject_id AND d.class = w.class AND d.tenant_id = of_tenant_id
        FOR UPDATE;
        IF NOT FOUND THEN -- another tenant's
            PERFORM keystore.refuse('keys.request_invalid');
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Destroys the keys, which cannot be undone, in one transaction. A repeated call returns
-- the same result.
-- +goose StatementBegin
CREATE FUNCTION keystore.destroy_erasure(of_request_id uuid) RETURNS TABLE (
    number bigint, destroyed_at timestamptz, generation bigint, keys json, previous_hash bytea, previous_known boolean
)
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    r         keystore.pii_deletion_log;
    receipt   keystore.erasure_receipts;
    known     boolean;
    moment    timestamptz;
    w         record;
    destroyed json;
BEGIN
    r := keystore.lock_erasure(of_request_id);
    SELECT e.* INTO receipt FROM keystore.erasure_receipts e WHERE e.request_id = of_request_id;
    known := FOUND; -- done, or replayed after the database was restored
    IF r.state = 'fenced' THEN
        IF NOT known THEN
            PERFORM keystore.lock_keys(r.tenant_id, array_agg(p.partition_id), array_agg(r.subject_id), array_agg(c.class))
            FROM unnest(r.partitions) AS p (partition_id), unnest(r.erased_classes) AS c (class);
            IF keystore.is_held(r.tenant_id, r.subject_id, r.partitions) THEN
                PERFORM keystore.refuse('erasure.held');
            END IF;
            SELECT json_agg(json_build_object('partition', k.partition_id, 'class', k.class, 'reference', k.key_ref, 'fingerprints', k.fingerprints)
                            ORDER BY k.partition_id, k.class)
            INTO destroyed
            FROM (
                SELECT d.partition_id, d.class, d.key_ref,
                    ARRAY(SELECT encode(v.fingerprint, 'hex') FROM keystore.data_subject_keys v
                          WHERE v.partition_id = d.partition_id AND v.subject_id = d.subject_id AND v.class = d.class
                          ORDER BY v.version) AS fingerprints
                FROM keystore.data_subjects d
                WHERE d.partition_id = ANY (r.partitions) AND d.subject_id = r.subject_id AND d.class = ANY (r.erased_classes)
            ) AS k;
            DELETE FROM keystore.data_subject_keys v
            WHERE v.partition_id = ANY (r.partitions) AND v.subject_id = r.subject_id AND v.class = ANY (r.erased_classes);
            moment := clock_timestamp();
            FOR w IN
                UPDATE keystore.data_subjects d SET state = 'destroyed', active_version = 0, destroyed_at = coalesce(d.destroyed_at, moment)
                WHERE d.partition_id = ANY (r.partitions) AND d.subject_id = r.subject_id AND d.class = ANY (r.erased_classes)
                RETURNING d.key_ref
            LOOP
                PERFORM pg_notify('keystore_evict', w.key_ref::text);
            END LOOP;
            -- The row's lock makes the numbers follow each other.
            UPDATE keystore.generation g SET generation = g.generation + 1 RETURNING g.generation INTO STRICT receipt.generation;
            INSERT INTO keystore.erasure_receipts AS e (number, destroyed_at, generation, request_id, tenant_id, keys)
            VALUES (coalesce((SELECT max(x.number) FROM keystore.erasure_receipts x), 0) + 1, moment, receipt.generation, of_request_id, r.tenant_id, destroyed)
            RETURNING e.* INTO STRICT receipt;
        END IF;
        UPDATE keystore.pii_deletion_log l
        SET destroyed_at = receipt.destroyed_at, generation = receipt.generation, receipt = receipt.number
        WHERE l.request_id = of_request_id;
        PERFORM keystore.reach(of_request_id, 'destroyed', NULL);
    ELSIF NOT known OR r.receipt = 0 THEN
        PERFORM keystore.refuse('erasure.move_refused');
    END IF;
    RETURN QUERY
    SELECT receipt.number, receipt.destroyed_at, receipt.generation, receipt.keys, sha256(p.note), receipt.number = 1 OR p.note IS NOT NULL
    FROM (SELECT 1) AS one LEFT JOIN keystore.erasure_receipts p ON p.number = receipt.number - 1;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.save_receipt(of_number bigint, new_note bytea, is_exported boolean) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    e keystore.erasure_receipts;
BEGIN
    SELECT x.* INTO e FROM keystore.erasure_receipts x WHERE x.number = of_number FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM keystore.refuse('erasure.not_found');
    ELSIF e.note <> new_note OR coalesce(octet_length(new_note), 0) = 0 THEN
        PERFORM keystore.refuse('erasure.receipt_changed');
    END IF;
    UPDATE keystore.erasure_receipts x SET note = new_note, exported = x.exported OR is_exported
    WHERE x.number = of_number AND (x.note IS NULL OR is_exported AND NOT x.exported);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.receipts(from_number bigint, page_size integer) RETURNS TABLE (
    number bigint, request_id uuid, tenant_id text, note bytea, exported boolean
)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY SELECT e.number, e.request_id, e.tenant_id, e.note, e.exported
    FROM keystore.erasure_receipts e WHERE e.number >= from_number ORDER BY e.number LIMIT page_size;
END
$$;
-- +goose StatementEnd

-- Destroys the versions that a receipt names, by fingerprint. A version that the receipt
-- does not name was minted later and stays, fenced. The fence belongs to the receipt from
-- then on: another request that set it first cannot lift it. The receipt's request, if the
-- database has it and it is in an earlier state, continues from destroyed: its keys are
-- gone. Fingerprints of one key are hexadecimal, separated by commas.
-- +goose StatementBegin
CREATE FUNCTION keystore.replay_erasure(
    new_number bigint, new_request_id uuid, new_tenant_id text, new_note bytea, is_exported boolean,
    partition_ids integer[], subject_ids text[], classes smallint[], fingerprints text[]
) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    e         keystore.erasure_receipts;
    own       keystore.pii_deletion_log;
    w         record;
    newest    integer;
    raised    bigint;
    moment    timestamptz;
BEGIN
    -- As everywhere, the request is locked before the keys.
    SELECT l.* INTO own FROM keystore.pii_deletion_log l
    WHERE l.request_id = new_request_id AND l.tenant_id = new_tenant_id AND l.state IN ('requested', 'previewed', 'approved', 'fenced')
    FOR UPDATE;
    SELECT x.* INTO e FROM keystore.erasure_receipts x WHERE x.number = new_number OR x.request_id = new_request_id;
    IF FOUND THEN
        IF e.number <> new_number OR e.request_id <> new_request_id THEN
            PERFORM keystore.refuse('erasure.receipt_changed');
        END IF;
        PERFORM keystore.save_receipt(new_number, new_note, is_exported);
        RETURN;
    END IF;
    INSERT INTO keystore.subject_fences AS f (fenced_at, request_id, partition_id, class, subject_id)
    SELECT clock_timestamp(), new_request_id, u.partition_id, u.class, u.subject_id
    FROM unnest(partition_ids, subject_ids, classes) AS u (partition_id, subject_id, class)
    ORDER BY u.partition_id, u.subject_id COLLATE "C", u.class
    ON CONFLICT ON CONSTRAINT subject_fences_pkey DO UPDATE
    SET fenced_at = excluded.fenced_at, request_id = excluded.request_id, lifted_at = NULL;
    PERFORM keystore.lock_keys(new_tenant_id, partition_ids, subject_ids, classes);
    moment := clock_timestamp();
    FOR w IN
        SELECT d.partition_id, d.subject_id, d.class, d.key_ref, string_to_array(u.named, ',') AS named
        FROM unnest(partition_ids, subject_ids, classes, fingerprints) AS u (partition_id, subject_id, class, named)
        JOIN keystore.data_subjects d ON d.partition_id = u.partition_id AND d.subject_id = u.subject_id AND d.class = u.class
    LOOP
        DELETE FROM keystore.data_subject_keys v
        WHERE v.partition_id = w.partition_id AND v.subject_id = w.subject_id AND v.class = w.class
          AND encode(v.fingerprint, 'hex') = ANY (w.named);
        SELECT max(v.version) INTO newest FROM keystore.data_subject_keys v
        WHERE v.partition_id = w.partition_id AND v.subject_id = w.subject_id AND v.class = w.class;
        UPDATE keystore.data_subjects d
        SET active_version = coalesce(newest, 0),
            state = CASE WHEN newest IS NULL THEN 'destroyed' ELSE d.state END,
            destroyed_at = CASE WHEN newest IS NULL THEN coalesce(d.destroyed_at, moment) END
        WHERE d.partition_id = w.partition_id AND d.subject_id = w.subject_id AND d.class = w.class;
        PERFORM pg_notify('keystore_evict', w.key_ref::text);
    END LOOP;
    UPDATE keystore.generation g SET generation = g.generation + 1 RETURNING g.generation INTO STRICT raised;
    INSERT INTO keystore.erasure_receipts (number, destroyed_at, generation, request_id, exported, tenant_id, keys, note)
    SELECT new_number, moment, raised, new_request_id, is_exported, new_tenant_id,
        coalesce(json_agg(json_build_object('partition', d.partition_id, 'class', d.class, 'reference', d.key_ref,
            'fingerprints', string_to_array(u.named, ',')) ORDER BY d.partition_id, d.class), '[]'), new_note
    FROM unnest(partition_ids, subject_ids, classes, fingerprints) AS u (partition_id, subject_id, class, named)
    JOIN keystore.data_subjects d ON d.partition_id = u.partition_id AND d.subject_id = u.subject_id AND d.class = u.class;
    IF own.request_id IS NULL OR cardinality(partition_ids) = 0 THEN
        RETURN;
    END IF;
    UPDATE keystore.pii_deletion_log l
    SET partitions = ARRAY(SELECT DISTINCT u.partition_id FROM unnest(partition_ids) AS u (partition_id) ORDER BY 1),
        erased_classes = ARRAY(SELECT DISTINCT u.class FROM unnest(replay_erasure.classes) AS u (class) ORDER BY 1),
        -- Why a class was kept is known from the preview, if at all.
        classes = (SELECT json_agg(CASE
                WHEN c.class = ANY (replay_erasure.classes) THEN json_build_object('class', c.class, 'erased', true)
                ELSE coalesce(
                    (SELECT p.decided FROM json_array_elements(CASE WHEN json_typeof(own.classes) = 'array' THEN own.classes ELSE '[]' END) AS p (decided)
                     WHERE (p.decided ->> 'class')::integer = c.class AND p.decided ->> 'erased' = 'false' LIMIT 1),
                    json_build_object('class', c.class, 'erased', false))
                END ORDER BY c.class) FROM generate_series(0, 2) AS c (class)),
        destroyed_at = moment, generation = raised, receipt = new_number
    WHERE l.request_id = new_request_id;
    PERFORM keystore.reach(new_request_id, 'destroyed', NULL);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.nodes_behind(wanted bigint, since timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT count(*) FROM keystore.nodes n WHERE n.seen_at >= since AND n.generation < wanted);
END
$$;
-- +goose StatementEnd

-- A hold waits for a destruction of the same subject in progress, and a destruction for a
-- hold: both lock the open request.
-- +goose StatementBegin
CREATE FUNCTION keystore.place_hold(
    new_hold_id uuid, new_tenant_id text, new_subject_id text, new_partition_id integer, new_reason text,
    new_placed_by text, new_placed_at timestamptz, new_until date
) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM keystore.pii_deletion_log l
    WHERE l.tenant_id = new_tenant_id AND l.subject_id = new_subject_id
      AND l.state NOT IN ('completed', 'rejected', 'withdrawn', 'expired', 'refused')
    FOR SHARE;
    INSERT INTO keystore.legal_holds (hold_id, placed_at, until, partition_id, tenant_id, subject_id, reason, placed_by)
    VALUES (new_hold_id, new_placed_at, new_until, new_partition_id, new_tenant_id, new_subject_id, new_reason, new_placed_by)
    ON CONFLICT (hold_id) DO NOTHING;
    IF NOT FOUND AND NOT EXISTS (
        SELECT FROM keystore.legal_holds h
        WHERE h.hold_id = new_hold_id AND h.tenant_id = new_tenant_id AND h.subject_id = new_subject_id AND h.partition_id = new_partition_id
          AND h.reason = new_reason AND h.placed_by = new_placed_by AND h.until IS NOT DISTINCT FROM new_until) THEN
        PERFORM keystore.refuse('erasure.changed');
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.release_hold(of_tenant_id text, of_hold_id uuid, by_person text, new_released_at timestamptz)
    RETURNS SETOF keystore.legal_holds
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE keystore.legal_holds h SET released_by = by_person, released_at = new_released_at
    WHERE h.hold_id = of_hold_id AND h.tenant_id = of_tenant_id AND h.released_at IS NULL;
    RETURN QUERY SELECT h.* FROM keystore.legal_holds h WHERE h.hold_id = of_hold_id AND h.tenant_id = of_tenant_id;
    IF NOT FOUND THEN
        PERFORM keystore.refuse('erasure.not_found');
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.holds(for_tenant_id text, for_subject_id text, on_day date) RETURNS SETOF keystore.legal_holds
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    IF for_subject_id <> '' THEN
        RETURN QUERY SELECT h.* FROM keystore.legal_holds h
        WHERE h.subject_id = for_subject_id AND h.tenant_id = for_tenant_id
          AND h.released_at IS NULL AND (h.until IS NULL OR h.until >= on_day)
        ORDER BY h.placed_at, h.hold_id;
    ELSE
        RETURN QUERY SELECT h.* FROM keystore.legal_holds h
        WHERE h.tenant_id = for_tenant_id AND h.released_at IS NULL AND (h.until IS NULL OR h.until >= on_day)
        ORDER BY h.placed_at, h.hold_id;
    END IF;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA keystore FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    keystore.destroy_erasure(uuid),
    keystore.save_receipt(bigint, bytea, boolean),
    keystore.receipts(bigint, integer),
    keystore.replay_erasure(bigint, uuid, text, bytea, boolean, integer[], text[], smallint[], text[]),
    keystore.nodes_behind(bigint, timestamptz),
    keystore.place_hold(uuid, text, text, integer, text, text, timestamptz, date),
    keystore.release_hold(text, uuid, text, timestamptz),
    keystore.holds(text, text, date)
    TO backbone_eraser;
