-- +goose Up

-- Replaces the function of migration 4, which returned early if the store had the receipt: a
-- key that was put back after its destruction then stayed. The receipt is signed and comes
-- from outside the database, so it decides, whatever the rows here say: each call fences the
-- subjects, destroys the versions that the receipt names, by fingerprint, and every version
-- of a key in state destroyed. A version that the receipt does not name was minted later and
-- stays, fenced. The fence belongs to the receipt from then on: another request that set it
-- first cannot lift it. The receipt's request, if the database has it and it is in an earlier
-- state, continues from destroyed: its keys are gone. Fingerprints of one key are
-- hexadecimal, separated by commas. Returns '', or erasure.receipt_changed if another receipt
-- is stored under the number: the destruction stays then, and nothing else changes.
DROP FUNCTION keystore.replay_erasure(bigint, uuid, text, bytea, boolean, integer[], text[], smallint[], text[]);

-- +goose StatementBegin
CREATE FUNCTION keystore.replay_erasure(
    new_number bigint, new_request_id uuid, new_tenant_id text, new_note bytea, is_exported boolean,
    partition_ids integer[], subject_ids text[], classes smallint[], fingerprints text[]
) RETURNS text
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    e         keystore.erasure_receipts;
    own       keystore.pii_deletion_log;
    w         record;
    known     boolean;
    changed   boolean;
    deleted   bigint;
    newest    integer;
    raised    bigint;
    moment    timestamptz;
BEGIN
    -- As everywhere, the request is locked before the keys.
    SELECT l.* INTO own FROM keystore.pii_deletion_log l
    WHERE l.request_id = new_request_id AND l.tenant_id = new_tenant_id AND l.state IN ('requested', 'previewed', 'approved', 'fenced')
    FOR UPDATE;
    INSERT INTO keystore.subject_fences AS f (fenced_at, request_id, partition_id, class, subject_id)
    SELECT clock_timestamp(), new_request_id, u.partition_id, u.class, u.subject_id
    FROM unnest(partition_ids, subject_ids, classes) AS u (partition_id, subject_id, class)
    ORDER BY u.partition_id, u.subject_id COLLATE "C", u.class
    ON CONFLICT ON CONSTRAINT subject_fences_pkey DO UPDATE
    SET fenced_at = excluded.fenced_at, request_id = excluded.request_id, lifted_at = NULL
    WHERE f.lifted_at IS NOT NULL OR NOT EXISTS (SELECT FROM keystore.erasure_receipts x WHERE x.request_id = f.request_id);
    changed := FOUND;
    PERFORM keystore.lock_keys(new_tenant_id, partition_ids, subject_ids, classes);
    moment := clock_timestamp();
    FOR w IN
        SELECT d.partition_id, d.subject_id, d.class, d.key_ref, d.state, d.active_version, string_to_array(u.named, ',') AS named
        FROM unnest(partition_ids, subject_ids, classes, fingerprints) AS u (partition_id, subject_id, class, named)
        JOIN keystore.data_subjects d ON d.partition_id = u.partition_id AND d.subject_id = u.subject_id AND d.class = u.class
    LOOP
        DELETE FROM keystore.data_subject_keys v
        WHERE v.partition_id = w.partition_id AND v.subject_id = w.subject_id AND v.class = w.class
          AND (w.state = 'destroyed' OR encode(v.fingerprint, 'hex') = ANY (w.named));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        SELECT coalesce(max(v.version), 0) INTO newest FROM keystore.data_subject_keys v
        WHERE v.partition_id = w.partition_id AND v.subject_id = w.subject_id AND v.class = w.class;
        CONTINUE WHEN deleted = 0 AND newest = w.active_version;
        UPDATE keystore.data_subjects d
        SET active_version = newest,
            state = CASE WHEN newest = 0 THEN 'destroyed' ELSE d.state END,
            destroyed_at = CASE WHEN newest = 0 THEN coalesce(d.destroyed_at, moment) END
        WHERE d.partition_id = w.partition_id AND d.subject_id = w.subject_id AND d.class = w.class;
        PERFORM pg_notify('keystore_evict', w.key_ref::text);
        changed := true;
    END LOOP;
    SELECT x.* INTO e FROM keystore.erasure_receipts x WHERE x.number = new_number;
    known := FOUND;
    IF changed OR NOT known THEN
        UPDATE keystore.generation g SET generation = g.generation + 1 RETURNING g.generation INTO STRICT raised;
    END IF;
    IF known AND (e.request_id <> new_request_id OR e.note <> new_note)
        OR EXISTS (SELECT FROM keystore.erasure_receipts x WHERE x.request_id = new_request_id AND x.number <> new_number) THEN
        RETURN 'erasure.receipt_changed';
    END IF;
    IF known THEN
        PERFORM keystore.save_receipt(new_number, new_note, is_exported);
    ELSE
        INSERT INTO keystore.erasure_receipts (number, destroyed_at, generation, request_id, exported, tenant_id, keys, note)
        SELECT new_number, moment, raised, new_request_id, is_exported, new_tenant_id,
            coalesce(json_agg(json_build_object('partition', d.partition_id, 'class', d.class, 'reference', d.key_ref,
                'fingerprints', string_to_array(u.named, ',')) ORDER BY d.partition_id, d.class), '[]'), new_note
        FROM unnest(partition_ids, subject_ids, classes, fingerprints) AS u (partition_id, subject_id, class, named)
        JOIN keystore.data_subjects d ON d.partition_id = u.partition_id AND d.subject_id = u.subject_id AND d.class = u.class;
    END IF;
    IF own.request_id IS NULL OR cardinality(partition_ids) = 0 THEN
        RETURN '';
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
        destroyed_at = moment, generation = coalesce(raised, e.generation), receipt = new_number
    WHERE l.request_id = new_request_id;
    PERFORM keystore.reach(new_request_id, 'destroyed', NULL);
    RETURN '';
END
$$;
-- +goose StatementEnd

-- The ended requests of all tenants that kept a class until a day before the given one, by id
-- after the given one.
-- +goose StatementBegin
CREATE FUNCTION keystore.erasures_to_follow(on_day date, after_request_id uuid, page_size integer) RETURNS SETOF keystore.pii_deletion_log
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY SELECT l.* FROM keystore.pii_deletion_log l
    WHERE l.request_id > after_request_id AND l.state IN ('completed', 'refused')
      AND EXISTS (
          SELECT FROM json_array_elements(CASE WHEN json_typeof(l.classes) = 'array' THEN l.classes ELSE '[]' END) AS c (decided)
          WHERE c.decided ->> 'erased' = 'false' AND (c.decided ->> 'until')::date < on_day)
    ORDER BY l.request_id
    LIMIT page_size;
END
$$;
-- +goose StatementEnd

-- The fingerprints that the receipts from a number on name, as hexadecimal, also of receipts
-- that are not signed yet.
-- +goose StatementBegin
CREATE FUNCTION keystore.destroyed_fingerprints(from_number bigint, page_size integer) RETURNS TABLE (number bigint, fingerprints text[])
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT e.number, ARRAY(
        SELECT f.fingerprint
        FROM json_array_elements(e.keys) AS k (key)
        CROSS JOIN json_array_elements_text(CASE WHEN json_typeof(k.key -> 'fingerprints') = 'array' THEN k.key -> 'fingerprints' ELSE '[]' END) AS f (fingerprint))
    FROM keystore.erasure_receipts e WHERE e.number >= from_number ORDER BY e.number LIMIT page_size;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA keystore FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    keystore.replay_erasure(bigint, uuid, text, bytea, boolean, integer[], text[], smallint[], text[]),
    keystore.erasures_to_follow(date, uuid, integer),
    keystore.destroyed_fingerprints(bigint, integer)
    TO backbone_eraser;
