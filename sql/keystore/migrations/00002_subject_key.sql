-- +goose Up

-- The functions of appending and reading nodes. Plans are kept per session, and a plan
-- from when a table was empty must not stay a scan: rows are probed one by one
-- through LATERAL, and scans are off.

-- Raises a refusal, which the caller turns into a fault: the constraint name is its code,
-- the detail at most an id.
-- +goose StatementBegin
CREATE FUNCTION keystore.refuse(code text, detail text DEFAULT '') RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '%', code USING ERRCODE = 'BK001', CONSTRAINT = code, DETAIL = detail;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.is_fenced(for_partition_id integer, for_subject_id text, for_class smallint) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM keystore.subject_fences f
        WHERE f.partition_id = for_partition_id AND f.subject_id = for_subject_id AND f.class = for_class AND f.lifted_at IS NULL);
END
$$;
-- +goose StatementEnd

-- Locks the keys that an append seals with, until its transaction ends, and returns the
-- ordinals of the locked ones: active in that version and not fenced. It never waits. FOR
-- SHARE needs the right to UPDATE, hence SECURITY DEFINER.
-- +goose StatementBegin
CREATE FUNCTION keystore.lease(
    ordinals integer[], partition_ids integer[], subject_ids text[], classes smallint[], versions integer[]
) RETURNS TABLE (ordinal integer)
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT w.ordinal
    FROM unnest(ordinals, partition_ids, subject_ids, classes, versions) AS w (ordinal, partition_id, subject_id, class, version)
    CROSS JOIN LATERAL (
        SELECT d.key_ref
        FROM keystore.data_subjects d
        WHERE d.partition_id = w.partition_id AND d.subject_id = w.subject_id AND d.class = w.class
          AND d.state = 'active' AND d.active_version = w.version
          -- OFFSET keeps it a probe; a join could be planned as a scan.
          AND NOT EXISTS (
              SELECT FROM keystore.subject_fences f
              WHERE f.partition_id = w.partition_id AND f.subject_id = w.subject_id AND f.class = w.class AND f.lifted_at IS NULL
              OFFSET 0)
        FOR SHARE OF d SKIP LOCKED
    ) AS k;
END
$$;
-- +goose StatementEnd

-- The state of every given key: absent, active, fenced or destroyed. A fence also applies
-- to a key that was never minted.
-- +goose StatementBegin
CREATE FUNCTION keystore.key_states(
    ordinals integer[], partition_ids integer[], subject_ids text[], classes smallint[]
) RETURNS TABLE (ordinal integer, state text, active_version integer)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT w.ordinal,
        CASE WHEN k.state = 'destroyed' THEN 'destroyed' WHEN f.request_id IS NOT NULL THEN 'fenced'
             ELSE coalesce(k.state, 'absent') END::text,
        coalesce(k.active_version, 0)
    FROM unnest(ordinals, partition_ids, subject_ids, classes) AS w (ordinal, partition_id, subject_id, class)
    LEFT JOIN LATERAL (
        SELECT d.state, d.active_version
        FROM keystore.data_subjects d
        WHERE d.partition_id = w.partition_id AND d.subject_id = w.subject_id AND d.class = w.class
        LIMIT 1
    ) AS k ON true
    LEFT JOIN LATERAL (
        SELECT x.request_id
        FROM keystore.subject_fences x
        WHERE x.partition_id = w.partition_id AND x.subject_id = w.subject_id AND x.class = w.class AND x.lifted_at IS NULL
        LIMIT 1
    ) AS f ON true;
END
$$;
-- +goose StatementEnd

-- The given keys with all their versions: one row per version, one without a version (0)
-- for a key that has none. By ordinal and version.
-- +goose StatementBegin
CREATE FUNCTION keystore.read(
    ordinals integer[], partition_ids integer[], subject_ids text[], classes smallint[]
) RETURNS TABLE (
    ordinal integer, key_ref uuid, state text, active_version integer,
    version integer, kek_epoch integer, kms_key_id text, wrapped bytea, fingerprint bytea
)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT w.ordinal, k.key_ref,
        CASE WHEN k.state = 'destroyed' THEN 'destroyed' WHEN f.request_id IS NOT NULL THEN 'fenced'
             ELSE coalesce(k.state, 'absent') END::text,
        coalesce(k.active_version, 0), coalesce(v.version, 0), coalesce(v.kek_epoch, 0), coalesce(e.kms_key_id, ''), v.wrapped, v.fingerprint
    FROM unnest(ordinals, partition_ids, subject_ids, classes) AS w (ordinal, partition_id, subject_id, class)
    LEFT JOIN LATERAL (
        SELECT d.key_ref, d.state, d.active_version
        FROM keystore.data_subjects d
        WHERE d.partition_id = w.partition_id AND d.subject_id = w.subject_id AND d.class = w.class
        LIMIT 1
    ) AS k ON true
    LEFT JOIN LATERAL (
        SELECT x.request_id
        FROM keystore.subject_fences x
        WHERE x.partition_id = w.partition_id AND x.subject_id = w.subject_id AND x.class = w.class AND x.lifted_at IS NULL
        LIMIT 1
    ) AS f ON true
    LEFT JOIN LATERAL (
        SELECT s.version, s.kek_epoch, s.tenant_id, s.wrapped, s.fingerprint
        FROM keystore.data_subject_keys s
        WHERE s.partition_id = w.partition_id AND s.subject_id = w.subject_id AND s.class = w.class
        OFFSET 0
    ) AS v ON true
    LEFT JOIN LATERAL (
        SELECT t.kms_key_id
        FROM keystore.tenant_keks t
        WHERE t.tenant_id = v.tenant_id AND t.epoch = v.kek_epoch
        LIMIT 1
    ) AS e ON true
    ORDER BY w.ordinal, v.version;
END
$$;
-- +goose StatementEnd

-- Stores the first version of an absent key or the next one of an active key, and
-- returns the stored key, as keystore.read does for ordinal 0. It locks first the KEK,
-- then the subject. It locks the KEK's row FOR SHARE, so that the change of epochs waits
-- for mints in flight and no later mint uses the old epoch.
-- +goose StatementBegin
CREATE FUNCTION keystore.mint(
    new_tenant_id text, new_partition_id integer, new_subject_id text, new_class smallint, new_key_ref uuid,
    new_version integer, new_kek_epoch integer, new_wrapped bytea, new_fingerprint bytea
) RETURNS TABLE (
    ordinal integer, key_ref uuid, state text, active_version integer,
    version integer, kek_epoch integer, kms_key_id text, wrapped bytea, fingerprint bytea
)
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    stands keystore.data_subjects%ROWTYPE;
    known  boolean;
    mine   boolean := false;
BEGIN
    IF keystore.is_fenced(new_partition_id, new_subject_id, new_class) THEN
        PERFORM keystore.refuse('pii.subject_erased');
    END IF;
    SELECT d.* INTO stands FROM keystore.data_subjects d
    WHERE d.partition_id = new_partition_id AND d.subject_id = new_subject_id AND d.class = new_class;
    known := FOUND;
    IF stands.state = 'destroyed' THEN
        PERFORM keystore.refuse('pii.subject_erased');
    ELSIF known AND stands.tenant_id <> new_tenant_id OR NOT known AND new_version <> 1 THEN
        PERFORM keystore.refuse('keys.request_invalid');
    END IF;

    IF NOT known OR new_version = stands.active_version + 1 AND new_key_ref = stands.key_ref THEN
        PERFORM FROM keystore.tenant_keks t
        WHERE t.tenant_id = new_tenant_id AND t.epoch = new_kek_epoch AND t.state = 'active'
        FOR SHARE;
        IF NOT FOUND THEN
            PERFORM keystore.refuse('keys.epoch_closed');
        END IF;
        IF known THEN
            SELECT d.* INTO stands FROM keystore.data_subjects d
            WHERE d.partition_id = new_partition_id AND d.subject_id = new_subject_id AND d.class = new_class
            FOR NO KEY UPDATE;
            mine := stands.state = 'active' AND new_version = stands.active_version + 1;
        ELSE
            -- Waits for another mint, or for an erasure, of the same key.
            INSERT INTO keystore.data_subjects AS d
                (created_at, key_ref, partition_id, active_version, class, tenant_id, subject_id, state)
            VALUES (now(), new_key_ref, new_partition_id, 1, new_class, new_tenant_id, new_subject_id, 'active')
            ON CONFLICT ON CONSTRAINT data_subjects_pkey DO NOTHING;
            mine := FOUND;
        END IF;
    END IF;

    IF mine THEN
        INSERT INTO keystore.data_subject_keys
            (created_at, partition_id, version, kek_epoch, class, tenant_id, subject_id, wrapped, fingerprint)
        VALUES (now(), new_partition_id, new_version, new_kek_epoch, new_class, new_tenant_id, new_subject_id, new_wrapped, new_fingerprint);
        IF known THEN
            UPDATE keystore.data_subjects d SET active_version = new_version
            WHERE d.partition_id = new_partition_id AND d.subject_id = new_subject_id AND d.class = new_class;
            PERFORM pg_notify('keystore_evict', new_key_ref::text);
        END IF;
    END IF;
    IF EXISTS (
        SELECT FROM keystore.data_subjects d
        WHERE d.partition_id = new_partition_id AND d.subject_id = new_subject_id AND d.class = new_class AND d.state = 'destroyed')
        OR keystore.is_fenced(new_partition_id, new_subject_id, new_class) THEN
        PERFORM keystore.refuse('pii.subject_erased');
    END IF;
    RETURN QUERY SELECT r.* FROM keystore.read(ARRAY[0], ARRAY[new_partition_id], ARRAY[new_subject_id], ARRAY[new_class]) AS r;
END
$$;
-- +goose StatementEnd

-- The KEK that wraps new keys of a tenant; no row if there is none.
-- +goose StatementBegin
CREATE FUNCTION keystore.active_kek(for_tenant_id text) RETURNS TABLE (epoch integer, kms_key_id text)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT t.epoch, t.kms_key_id FROM keystore.tenant_keks t WHERE t.tenant_id = for_tenant_id AND t.state = 'active';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION keystore.secret(for_tenant_id text, for_purpose text) RETURNS TABLE (
    secret_ref uuid, version integer, kek_epoch integer, kms_key_id text, wrapped bytea, fingerprint bytea
)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT s.secret_ref, s.version, s.kek_epoch, t.kms_key_id, s.wrapped, s.fingerprint
    FROM keystore.tenant_secrets s JOIN keystore.tenant_keks t ON t.tenant_id = s.tenant_id AND t.epoch = s.kek_epoch
    WHERE s.tenant_id = for_tenant_id AND s.purpose = for_purpose;
END
$$;
-- +goose StatementEnd

-- Stores the first secret of a tenant and purpose, and returns the stored one.
-- +goose StatementBegin
CREATE FUNCTION keystore.save_secret(
    new_tenant_id text, new_purpose text, new_secret_ref uuid, new_version integer, new_kek_epoch integer, new_wrapped bytea, new_fingerprint bytea
) RETURNS TABLE (
    secret_ref uuid, version integer, kek_epoch integer, kms_key_id text, wrapped bytea, fingerprint bytea
)
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM keystore.tenant_secrets s WHERE s.tenant_id = new_tenant_id AND s.purpose = new_purpose) THEN
        PERFORM FROM keystore.tenant_keks t
        WHERE t.tenant_id = new_tenant_id AND t.epoch = new_kek_epoch AND t.state = 'active'
        FOR SHARE;
        IF NOT FOUND THEN
            PERFORM keystore.refuse('keys.epoch_closed');
        END IF;
        INSERT INTO keystore.tenant_secrets (created_at, secret_ref, version, kek_epoch, tenant_id, purpose, wrapped, fingerprint)
        VALUES (now(), new_secret_ref, new_version, new_kek_epoch, new_tenant_id, new_purpose, new_wrapped, new_fingerprint)
        ON CONFLICT ON CONSTRAINT tenant_secrets_pkey DO NOTHING;
    END IF;
    RETURN QUERY SELECT r.* FROM keystore.secret(new_tenant_id, new_purpose) AS r;
END
$$;
-- +goose StatementEnd

-- Stores up to which generation a node has evicted destroyed keys, and returns the newest
-- generation. The first report of a node removes the rows of nodes that ended long ago.
-- +goose StatementBegin
CREATE FUNCTION keystore.report_node(reporting_node_id text, forgotten bigint) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE keystore.nodes n SET generation = forgotten, seen_at = clock_timestamp() WHERE n.node_id = reporting_node_id;
    IF NOT FOUND THEN
        INSERT INTO keystore.nodes AS n (node_id, generation, seen_at) VALUES (reporting_node_id, forgotten, clock_timestamp())
        ON CONFLICT (node_id) DO UPDATE SET generation = excluded.generation, seen_at = excluded.seen_at;
        DELETE FROM keystore.nodes n WHERE n.seen_at < clock_timestamp() - interval '7 days';
    END IF;
    RETURN (SELECT g.generation FROM keystore.generation g);
END
$$;
-- +goose StatementEnd

-- The newest migration, for the role that migrates the log.
-- +goose StatementBegin
CREATE FUNCTION keystore.schema_version() RETURNS bigint
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT max(m.version_id) FROM keystore.migrations m WHERE m.is_applied);
END
$$;
-- +goose StatementEnd

-- A test reads the catalog and fails on any other grant.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA keystore FROM PUBLIC;
GRANT USAGE ON SCHEMA keystore TO backbone_app, backbone_eraser, backbone_owner;
GRANT EXECUTE ON FUNCTION
    keystore.lease(integer[], integer[], text[], smallint[], integer[]),
    keystore.key_states(integer[], integer[], text[], smallint[]),
    keystore.read(integer[], integer[], text[], smallint[]),
    keystore.mint(text, integer, text, smallint, uuid, integer, integer, bytea, bytea),
    keystore.active_kek(text),
    keystore.secret(text, text),
    keystore.save_secret(text, text, uuid, integer, integer, bytea, bytea),
    keystore.report_node(text, bigint)
    TO backbone_app;
GRANT EXECUTE ON FUNCTION keystore.schema_version() TO backbone_owner;
