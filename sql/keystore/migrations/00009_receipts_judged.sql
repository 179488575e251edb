-- +goose Up

-- What verification compares: also the keys of receipts with their notes, receipts and versions of
-- keys that nothing explains, and when an approval was stored. JSON of any form is compared.

-- A JSON array, an empty one for any other value.
-- +goose StatementBegin
CREATE FUNCTION keystore.list_in(value json) RETURNS json
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT CASE WHEN json_typeof(value) = 'array' THEN value ELSE '[]'::json END $$;
-- +goose StatementEnd

-- The number that a JSON object has under a name, null if it is none.
-- +goose StatementBegin
CREATE FUNCTION keystore.number_in(value json, name text) RETURNS integer
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT CASE WHEN value ->> name ~ '^[0-9]{1,9}$' THEN (value ->> name)::integer END $$;
-- +goose StatementEnd

DROP FUNCTION keystore.erasure_journal(text);

-- The steps and approvals of a tenant's requests, in order. Either may lack the other.
-- +goose StatementBegin
CREATE FUNCTION keystore.erasure_journal(for_tenant_id text) RETURNS TABLE (
    request_id uuid, revision integer, state text, person text, requester_person text, approver_person text, scope bytea, stored_at timestamptz
)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT l.request_id, j.revision, j.state, j.person, j.requester_person, j.approver_person, j.scope, j.stored_at
    FROM keystore.pii_deletion_log l
    CROSS JOIN LATERAL (
        SELECT coalesce(s.revision, a.revision) AS revision, s.state, s.person, a.requester_person, a.approver_person, a.scope, a.stored_at
        FROM (SELECT x.* FROM keystore.pii_deletion_steps x WHERE x.request_id = l.request_id) AS s
        FULL JOIN (SELECT y.* FROM keystore.pii_deletion_approvals y WHERE y.request_id = l.request_id) AS a ON a.revision = s.revision
    ) AS j
    WHERE l.tenant_id = for_tenant_id
    ORDER BY l.request_id, j.revision;
END
$$;
-- +goose StatementEnd

-- What in the partitions of a tenant contradicts its requests and receipts, which verification
-- compares with the log: problem is one of the words below, about names the row without the
-- person.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION keystore.contradictions(for_tenant_id text, for_partitions integer[]) RETURNS TABLE (problem text, about text)
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH named AS MATERIALIZED ( -- the keys that receipts name
        SELECT e.request_id, keystore.number_in(k.key, 'partition') AS partition_id, keystore.number_in(k.key, 'class') AS class
        FROM keystore.erasure_receipts e CROSS JOIN json_array_elements(keystore.list_in(e.keys)) AS k (key)
    )
    -- The classes of the fences are those that were decided.
    SELECT 'classes_differ', l.request_id::text
    FROM keystore.pii_deletion_log l
    WHERE l.tenant_id = for_tenant_id AND l.state IN ('fenced', 'destroyed', 'receipted', 'announced', 'evicted', 'rebuilt', 'verified', 'completed')
      AND l.erased_classes IS DISTINCT FROM ARRAY(
          SELECT keystore.number_in(c.decided, 'class')::smallint
          FROM json_array_elements(keystore.list_in(l.classes)) AS c (decided)
          WHERE c.decided ->> 'erased' = 'true' ORDER BY 1)
    UNION ALL
    SELECT 'fence_missing', l.request_id::text
    FROM keystore.pii_deletion_log l CROSS JOIN unnest(l.partitions) AS p (partition_id) CROSS JOIN unnest(l.erased_classes) AS c (class)
    WHERE l.tenant_id = for_tenant_id AND l.state IN ('fenced', 'destroyed', 'receipted', 'announced', 'evicted', 'rebuilt', 'verified', 'completed')
      AND NOT EXISTS (
          SELECT FROM keystore.subject_fences f
          WHERE f.partition_id = p.partition_id AND f.subject_id = l.subject_id AND f.class = c.class AND f.lifted_at IS NULL)
    UNION ALL
    -- A fence of no request or receipt, or of a request that has none, keeps a person's data out.
    -- A receipt names no person; the request does, while its row exists.
    SELECT 'fence_unexplained', f.request_id::text
    FROM keystore.subject_fences f
    WHERE f.partition_id = ANY (for_partitions) AND f.lifted_at IS NULL
      AND NOT EXISTS (
          SELECT FROM keystore.pii_deletion_log l
          WHERE l.request_id = f.request_id AND l.subject_id = f.subject_id AND f.partition_id = ANY (l.partitions) AND f.class = ANY (l.erased_classes)
            AND l.state IN ('fenced', 'destroyed', 'receipted', 'announced', 'evicted', 'rebuilt', 'verified', 'completed'))
      AND NOT EXISTS (
          SELECT FROM named n WHERE n.request_id = f.request_id AND n.partition_id = f.partition_id AND n.class = f.class
            AND NOT EXISTS (SELECT FROM keystore.pii_deletion_log o WHERE o.request_id = f.request_id AND o.subject_id <> f.subject_id))
    UNION ALL
    SELECT 'key_row_missing', l.receipt::text
    FROM keystore.pii_deletion_log l CROSS JOIN unnest(l.partitions) AS p (partition_id) CROSS JOIN unnest(l.erased_classes) AS c (class)
    WHERE l.tenant_id = for_tenant_id AND l.state IN ('destroyed', 'receipted', 'announced', 'evicted', 'rebuilt', 'verified', 'completed')
      AND NOT EXISTS (
          SELECT FROM keystore.data_subjects d WHERE d.partition_id = p.partition_id AND d.subject_id = l.subject_id AND d.class = c.class)
    UNION ALL
    -- Only an erasure destroys a key, and it leaves the fence. A replay may have made the row again.
    SELECT 'destroyed_unexplained', d.key_ref::text
    FROM keystore.data_subjects d
    WHERE d.partition_id = ANY (for_partitions) AND d.state = 'destroyed'
      AND NOT EXISTS (
          SELECT FROM keystore.subject_fences f JOIN named n ON n.request_id = f.request_id AND n.partition_id = f.partition_id AND n.class = f.class
          WHERE f.partition_id = d.partition_id AND f.subject_id = d.subject_id AND f.class = d.class AND f.lifted_at IS NULL
            AND NOT EXISTS (SELECT FROM keystore.pii_deletion_log o WHERE o.request_id = f.request_id AND o.subject_id <> f.subject_id))
    UNION ALL
    SELECT 'key_without_version', d.key_ref::text
    FROM keystore.data_subjects d
    WHERE d.partition_id = ANY (for_partitions) AND d.state = 'active'
      AND NOT EXISTS (
          SELECT FROM keystore.data_subject_keys v
          WHERE v.partition_id = d.partition_id AND v.subject_id = d.subject_id AND v.class = d.class AND v.version = d.active_version)
    UNION ALL
    -- Versions are numbered from 1 to the active one.
    SELECT 'version_unexplained', coalesce(d.key_ref::text, 'without a row')
    FROM keystore.data_subject_keys v
    LEFT JOIN keystore.data_subjects d ON d.partition_id = v.partition_id AND d.subject_id = v.subject_id AND d.class = v.class
    WHERE v.partition_id = ANY (for_partitions) AND v.version > coalesce(d.active_version, 0)
    UNION ALL
    SELECT 'foreign_tenant', d.key_ref::text
    FROM keystore.data_subjects d
    WHERE d.partition_id = ANY (for_partitions) AND (d.tenant_id <> for_tenant_id OR EXISTS (
        SELECT FROM keystore.data_subject_keys v
        WHERE v.partition_id = d.partition_id AND v.subject_id = d.subject_id AND v.class = d.class AND v.tenant_id <> for_tenant_id))
    UNION ALL
    SELECT 'receipt_number', e.number::text
    FROM keystore.erasure_receipts e
    WHERE e.tenant_id = for_tenant_id AND e.number > 1 AND NOT EXISTS (SELECT FROM keystore.erasure_receipts x WHERE x.number = e.number - 1)
    UNION ALL
    -- The keys of a receipt are those of its signed note, whose hash an event has: a line for each
    -- key, with partition, class, person and fingerprints.
    SELECT 'receipt_keys', e.number::text
    FROM keystore.erasure_receipts e
    WHERE e.tenant_id = for_tenant_id AND (json_typeof(e.keys) <> 'array' OR e.note IS NOT NULL AND ARRAY(
        SELECT concat_ws(' ', keystore.number_in(k.key, 'partition'),
            CASE keystore.number_in(k.key, 'class') WHEN 0 THEN 'standard' WHEN 1 THEN 'regulatory' WHEN 2 THEN 'pii_subject' END,
            (SELECT string_agg(f.fingerprint, ' ' ORDER BY f.place)
             FROM json_array_elements_text(keystore.list_in(k.key -> 'fingerprints')) WITH ORDINALITY AS f (fingerprint, place)))
        FROM json_array_elements(keystore.list_in(e.keys)) AS k (key) ORDER BY 1
    ) IS DISTINCT FROM ARRAY(
        SELECT regexp_replace(n.line, '^(\S+ \S+) \S+', '\1')
        FROM regexp_split_to_table(split_part(encode(e.note, 'escape'), E'\n\n', 1), E'\n') WITH ORDINALITY AS n (line, place)
        WHERE n.place > 6 ORDER BY 1
    ))
    UNION ALL
    -- One that says it was exported is compared with the export folder. The row of a tenant that
    -- has no keys is shown to each.
    SELECT 'receipt_unexplained', e.number::text
    FROM keystore.erasure_receipts e
    WHERE NOT e.exported AND (e.tenant_id = for_tenant_id OR NOT EXISTS (SELECT FROM keystore.tenant_keks t WHERE t.tenant_id = e.tenant_id))
      AND NOT EXISTS (SELECT FROM keystore.pii_deletion_log l WHERE l.request_id = e.request_id AND l.tenant_id = e.tenant_id AND l.receipt = e.number)
    UNION ALL
    -- A receipt that was replayed has a later one than its request.
    SELECT 'receipt_generation', e.number::text
    FROM keystore.erasure_receipts e JOIN keystore.pii_deletion_log l ON l.request_id = e.request_id AND l.receipt = e.number
    WHERE e.tenant_id = for_tenant_id AND e.generation < l.generation
    UNION ALL
    -- A generation that is set back lets a node keep a destroyed key in memory.
    SELECT 'generation_set_back', e.number::text
    FROM keystore.erasure_receipts e
    WHERE e.tenant_id = for_tenant_id AND e.generation > (SELECT g.generation FROM keystore.generation g);
END
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA keystore FROM PUBLIC;
GRANT EXECUTE ON FUNCTION keystore.erasure_journal(text) TO backbone_eraser;
