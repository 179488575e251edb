-- +goose Up

-- Payloads leave the database for the archive in segments, and come back from it. Skeletons, keys and all else stay.
-- Only the functions below remove a payload or bring one back, and no role of a node may call them.

-- The segments whose payloads are in the archive. Ranges of a partition do not overlap; payloads of a range that are
-- in the database were not archived. event_sequence is that of the event with the manifest.
CREATE TABLE backbone.archive_segments (
    archived_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    first_sequence bigint NOT NULL CHECK (first_sequence > 0),
    last_sequence  bigint NOT NULL,
    event_sequence bigint NOT NULL,
    partition_id   integer NOT NULL,
    records        integer NOT NULL CHECK (records > 0),
    object         text COLLATE "C" NOT NULL CHECK (octet_length(object) BETWEEN 1 AND 200),
    object_digest  bytea NOT NULL CHECK (octet_length(object_digest) = 32),
    CONSTRAINT archive_segments_pkey PRIMARY KEY (partition_id, first_sequence),
    CONSTRAINT archive_segments_range CHECK (first_sequence <= last_sequence)
);

-- The states of the entities and streams of a segment as of its end, in compressed pages by key: from them, no state needs
-- its payloads. A page has a message authentication code, as snapshots have.
CREATE TABLE backbone.archive_states (
    first_sequence bigint NOT NULL CHECK (first_sequence > 0), -- of the segment
    partition_id   integer NOT NULL,
    first_key      text COLLATE "C" NOT NULL CHECK (octet_length(first_key) <= 600),
    packed         bytea NOT NULL CHECK (octet_length(packed) <= 4 * 1024 * 1024),
    mac            bytea NOT NULL CHECK (octet_length(mac) = 32),
    CONSTRAINT archive_states_pkey PRIMARY KEY (partition_id, first_sequence, first_key)
);
ALTER TABLE backbone.archive_states ALTER COLUMN packed SET STORAGE EXTERNAL;

-- The hash that skeleton and redactions vouch for: that of the last redaction, or the skeleton's.
-- +goose StatementBegin
CREATE FUNCTION backbone.vouched_hash(of_partition_id integer, of_sequence bigint, skeleton bytea) RETURNS bytea
    LANGUAGE sql
    STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((
        SELECT a.new_payload_hash FROM backbone.pii_redactions a
        WHERE a.partition_id = of_partition_id AND a.sequence = of_sequence
          AND NOT EXISTS (
            SELECT FROM backbone.pii_redactions b
            WHERE b.partition_id = a.partition_id AND b.sequence = a.sequence AND b.old_payload_hash = a.new_payload_hash)
        LIMIT 1), skeleton)
$$;
-- +goose StatementEnd

-- Removes the payloads of a segment. The event at of_event has its manifest, and the caller the lease on the archive of the
-- partition under of_term: no other has removed the file since. It refuses unless the payloads are those
-- of the manifest and of their skeletons, of events of a legal entity that are older than two years, no decisions of
-- the backbone's, and not about to be redacted, each projection has read them, and each entity that they refer to is among
-- the states, which were folded when the partition had so many redactions.
-- The frozen format of the content: SHA-256(L(domain) || u32 partition || (u64 sequence || payload hash) of each).
-- +goose StatementBegin
CREATE FUNCTION backbone.archive_payloads(
    of_partition_id integer, of_term bigint, of_event bigint, of_sequences bigint[], of_redactions bigint,
    state_keys text[], page_keys text[], page_states bytea[], page_macs bytea[]
) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    payload_domain CONSTANT bytea := int4send(19) || convert_to('backbone/payload/v1', 'UTF8');
    content_domain CONSTANT bytea := int4send(19) || convert_to('backbone/archive/v1', 'UTF8');
    manifest json;
    removed  record;
BEGIN
    -- One at a time, and await_archiving waits for it: who takes the lease later finds the segment.
    LOCK TABLE backbone.archive_segments IN SHARE ROW EXCLUSIVE MODE;
    IF NOT EXISTS (
        SELECT FROM backbone.leases l
        WHERE l.name = 'archive' AND l.partition_id = of_partition_id AND l.term = of_term AND l.holder <> '' AND l.expires_at > clock_timestamp())
    THEN
        RAISE EXCEPTION 'no lease' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_lease';
    END IF;
    SELECT p.payload -> 'data' INTO manifest
    FROM backbone.events e
    JOIN backbone.event_payloads p ON p.partition_id = of_partition_id AND p.sequence = e.sequence
    WHERE e.partition_id = of_partition_id AND e.sequence = of_event AND e.type = 'backbone.payloads.archived'
      AND NOT EXISTS ( -- it is the last word about its range
        SELECT FROM backbone.events n
        WHERE n.partition_id = of_partition_id AND n.stream_type = e.stream_type AND n.stream_id = e.stream_id AND n.stream_version > e.stream_version);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no manifest' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_manifest';
    END IF;

    WITH gone AS (
        DELETE FROM backbone.event_payloads p WHERE p.partition_id = of_partition_id AND p.sequence = ANY (of_sequences)
        RETURNING p.sequence, sha256(payload_domain || p.salt || convert_to(p.payload::text, 'UTF8')) AS hash, p.payload -> 'entity_refs' AS refs
    ), judged AS (
        SELECT g.sequence, g.hash, g.refs, e.type, e.recorded_at, backbone.vouched_hash(of_partition_id, g.sequence, e.payload_hash) AS vouched
        FROM gone g
        JOIN backbone.events e ON e.partition_id = of_partition_id AND e.sequence = g.sequence
    )
    SELECT count(*) AS records, min(j.sequence) AS first_sequence, max(j.sequence) AS last_sequence, max(j.recorded_at) AS newest,
        bool_and(j.hash = j.vouched) AS vouched, bool_or(j.type ~ '^(backbone|registry|intent|pii|stream)\.') AS decides,
        sha256(content_domain || int4send(of_partition_id) || string_agg(int8send(j.sequence) || j.hash, ''::bytea ORDER BY j.sequence)) AS content,
        EXISTS (
            SELECT 'entity:' || (r.ref ->> 'entity_type') || ':' || (r.ref ->> 'entity_id')
            FROM judged k
            CROSS JOIN LATERAL json_array_elements(coalesce(k.refs, '[]')) AS r (ref)
            EXCEPT SELECT unnest(state_keys)) AS uncovered
    INTO removed
    FROM judged j;

    IF removed.records IS DISTINCT FROM (manifest ->> 'records')::bigint OR removed.records <> cardinality(of_sequences)
        OR encode(removed.content, 'hex') IS DISTINCT FROM manifest ->> 'content_hash' OR removed.vouched IS NOT TRUE
        OR removed.first_sequence < (manifest ->> 'first_sequence')::bigint OR removed.last_sequence > (manifest ->> 'last_sequence')::bigint
    THEN
        RAISE EXCEPTION 'not the payloads of the manifest' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_content';
    END IF;
    IF removed.newest > clock_timestamp() - interval '2 years' THEN
        RAISE EXCEPTION 'too young' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_age';
    END IF;
    IF removed.decides OR EXISTS (SELECT FROM backbone.legal_entities l WHERE l.partition_id = of_partition_id AND l.code = '_ADMIN') THEN
        RAISE EXCEPTION 'decisions stay' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_decisions';
    END IF;
    IF EXISTS (
        SELECT FROM backbone.redaction_requests q
        WHERE q.partition_id = of_partition_id
          AND (q.state IN ('approved', 'redacted', 'announced', 'rebuilt') OR q.state = 'previewed' AND q.sequence = ANY (of_sequences)))
        OR (SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = of_partition_id) IS DISTINCT FROM of_redactions
    THEN
        RAISE EXCEPTION 'about to be redacted' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_redaction';
    END IF;
    IF removed.uncovered THEN
        RAISE EXCEPTION 'an entity without a snapshot' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_snapshots';
    END IF;
    IF EXISTS (
        SELECT FROM backbone.projections p
        WHERE p.role IN ('building', 'active', 'retained') AND p.scope IN (0, of_partition_id)
          AND NOT EXISTS (
            SELECT FROM backbone.projection_checkpoints c
            WHERE c.projection = p.name AND c.version = p.version AND c.partition_id = of_partition_id AND c.sequence >= removed.last_sequence))
    THEN
        RAISE EXCEPTION 'a projection is behind' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_projections';
    END IF;
    IF EXISTS (
        SELECT FROM backbone.archive_segments s
        WHERE s.partition_id = of_partition_id AND s.first_sequence <= (manifest ->> 'last_sequence')::bigint
          AND s.last_sequence >= (manifest ->> 'first_sequence')::bigint)
    THEN
        RAISE EXCEPTION 'archived already' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_overlap';
    END IF;
    INSERT INTO backbone.archive_segments (partition_id, first_sequence, last_sequence, event_sequence, records, object, object_digest)
    VALUES (of_partition_id, (manifest ->> 'first_sequence')::bigint, (manifest ->> 'last_sequence')::bigint, of_event, removed.records,
        manifest ->> 'object', decode(manifest ->> 'object_sha256', 'hex'));
    INSERT INTO backbone.archive_states (partition_id, first_sequence, first_key, packed, mac)
    SELECT of_partition_id, (manifest ->> 'first_sequence')::bigint, u.first_key, u.packed, u.mac
    FROM unnest(page_keys, page_states, page_macs) AS u (first_key, packed, mac);
END
$$;
-- +goose StatementEnd

-- Brings payloads of the segment that begins at a sequence back: each is the one that its skeleton and redactions vouch for.
-- The segment ends when no payload of its range is missing. Returns how many still are.
-- +goose StatementBegin
CREATE FUNCTION backbone.restore_payloads(of_partition_id integer, of_first bigint, of_sequences bigint[], salts bytea[], payloads text[]) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    payload_domain CONSTANT bytea := int4send(19) || convert_to('backbone/payload/v1', 'UTF8');
    segment backbone.archive_segments%ROWTYPE;
    missing bigint;
BEGIN
    LOCK TABLE backbone.archive_segments IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO segment FROM backbone.archive_segments s WHERE s.partition_id = of_partition_id AND s.first_sequence = of_first;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no segment' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_segment';
    END IF;
    IF EXISTS (
        SELECT FROM unnest(of_sequences, salts, payloads) AS u (sequence, salt, payload)
        LEFT JOIN backbone.events e ON e.partition_id = of_partition_id AND e.sequence = u.sequence
        WHERE u.sequence NOT BETWEEN segment.first_sequence AND segment.last_sequence OR e.sequence IS NULL
           OR sha256(payload_domain || u.salt || convert_to(u.payload, 'UTF8')) <> backbone.vouched_hash(of_partition_id, u.sequence, e.payload_hash))
    THEN
        RAISE EXCEPTION 'not the payloads of the log' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_content';
    END IF;
    INSERT INTO backbone.event_payloads (partition_id, sequence, salt, payload, redactions)
    SELECT of_partition_id, u.sequence, u.salt, u.payload::json, (
        SELECT json_agg(json_build_object('request', r.id, 'pointers', r.pointers, 'at', r.redacted_at) ORDER BY r.redacted_at, r.id)
        FROM backbone.pii_redactions r WHERE r.partition_id = of_partition_id AND r.sequence = u.sequence)
    FROM unnest(of_sequences, salts, payloads) AS u (sequence, salt, payload)
    WHERE NOT EXISTS (SELECT FROM backbone.event_payloads p WHERE p.partition_id = of_partition_id AND p.sequence = u.sequence);
    SELECT count(*) INTO missing
    FROM backbone.events e
    WHERE e.partition_id = of_partition_id AND e.sequence BETWEEN segment.first_sequence AND segment.last_sequence
      AND NOT EXISTS (SELECT FROM backbone.event_payloads p WHERE p.partition_id = of_partition_id AND p.sequence = e.sequence);
    IF missing = 0 THEN
        DELETE FROM backbone.archive_segments s WHERE s.partition_id = of_partition_id AND s.first_sequence = of_first;
        DELETE FROM backbone.archive_states a WHERE a.partition_id = of_partition_id AND a.first_sequence = of_first;
    END IF;
    RETURN missing;
END
$$;
-- +goose StatementEnd

-- Waits until payloads that are being removed are: what begins later sees what was committed before this call.
-- +goose StatementBegin
CREATE FUNCTION backbone.await_archiving() RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    LOCK TABLE backbone.archive_segments IN SHARE MODE;
END
$$;
-- +goose StatementEnd

-- Replaces a page of states, which has the MAC, by others, or by none, of the same segment.
-- +goose StatementBegin
CREATE FUNCTION backbone.replace_states(of_partition_id integer, of_first bigint, of_key text, of_mac bytea, page_keys text[], page_states bytea[], page_macs bytea[]) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM backbone.archive_states a WHERE a.partition_id = of_partition_id AND a.first_sequence = of_first AND a.first_key = of_key AND a.mac = of_mac;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another page' USING ERRCODE = 'check_violation', CONSTRAINT = 'archive_content';
    END IF;
    INSERT INTO backbone.archive_states (partition_id, first_sequence, first_key, packed, mac)
    SELECT of_partition_id, of_first, u.first_key, u.packed, u.mac
    FROM unnest(page_keys, page_states, page_macs) AS u (first_key, packed, mac);
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION backbone.vouched_hash(integer, bigint, bytea), backbone.await_archiving(), backbone.replace_states(integer, bigint, text, bytea, text[], bytea[], bytea[]),
    backbone.archive_payloads(integer, bigint, bigint, bigint[], bigint, text[], text[], bytea[], bytea[]),
    backbone.restore_payloads(integer, bigint, bigint[], bytea[], text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.vouched_hash(integer, bigint, bytea) TO backbone_archiver;
GRANT EXECUTE ON FUNCTION backbone.await_archiving(), backbone.replace_states(integer, bigint, text, bytea, text[], bytea[], bytea[]), backbone.archive_payloads(integer, bigint, bigint, bigint[], bigint, text[], text[], bytea[], bytea[]), backbone.restore_payloads(integer, bigint, bigint[], bytea[], text[]) TO backbone_eraser;
GRANT SELECT, INSERT, DELETE ON backbone.archive_segments, backbone.archive_states, backbone.event_payloads TO backbone_archiver;
GRANT SELECT ON backbone.legal_entities, backbone.pii_redactions, backbone.redaction_requests, backbone.leases, backbone.projections, backbone.projection_checkpoints TO backbone_archiver;
GRANT SELECT ON backbone.archive_segments, backbone.archive_states TO backbone_app, backbone_reader, backbone_eraser;
GRANT CREATE ON SCHEMA backbone TO backbone_archiver;
ALTER FUNCTION backbone.await_archiving() OWNER TO backbone_archiver;
ALTER FUNCTION backbone.replace_states(integer, bigint, text, bytea, text[], bytea[], bytea[]) OWNER TO backbone_archiver;
ALTER FUNCTION backbone.archive_payloads(integer, bigint, bigint, bigint[], bigint, text[], text[], bytea[], bytea[]) OWNER TO backbone_archiver;
ALTER FUNCTION backbone.restore_payloads(integer, bigint, bigint[], bytea[], text[]) OWNER TO backbone_archiver;
REVOKE CREATE ON SCHEMA backbone FROM backbone_archiver;
