-- +goose Up

-- Snapshots are derived: a new fold gives the same state. Personal values in them are
-- sealed, as in the events. The newest three of each entity or stream are kept.

-- The state of an entity.
CREATE TABLE backbone.entity_snapshots (
    as_of_sequence    bigint NOT NULL,
    version           bigint NOT NULL,
    event_count       bigint NOT NULL,
    created_at        timestamptz NOT NULL,
    partition_id      integer NOT NULL,
    size_bytes        integer NOT NULL,
    effective_through date NOT NULL,
    status            text COLLATE "C" NOT NULL CHECK (status IN ('valid', 'stale')),
    entity_type       text COLLATE "C" NOT NULL,
    entity_id         text COLLATE "C" NOT NULL,
    fold              text NOT NULL, -- version of the code that folded it
    state             json NOT NULL,
    CONSTRAINT entity_snapshots_pkey PRIMARY KEY (partition_id, entity_type, entity_id, as_of_sequence)
);

-- The state of a stream: those that clients store, and the node's own.
CREATE TABLE backbone.stream_snapshots (
    version        bigint NOT NULL,
    created_at     timestamptz NOT NULL,
    partition_id   integer NOT NULL,
    schema_version integer NOT NULL,
    size_bytes     integer NOT NULL,
    internal       boolean NOT NULL,
    id             uuid NOT NULL,
    stream_type    text COLLATE "C" NOT NULL,
    stream_id      text COLLATE "C" NOT NULL,
    state_type     text COLLATE "C" NOT NULL,
    state          json NOT NULL,
    metadata       json,
    CONSTRAINT stream_snapshots_pkey PRIMARY KEY (partition_id, stream_type, stream_id, internal, version)
);

-- The state of a projection, for rebuilds.
CREATE TABLE backbone.event_snapshots (
    sequence     bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    version      integer NOT NULL,
    partition_id integer NOT NULL,
    size_bytes   integer NOT NULL,
    projection   text COLLATE "C" NOT NULL,
    state        json NOT NULL,
    CONSTRAINT event_snapshots_pkey PRIMARY KEY (partition_id, projection, version, sequence)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.entity_snapshots, backbone.stream_snapshots, backbone.event_snapshots TO backbone_app;
GRANT SELECT ON backbone.entity_snapshots, backbone.stream_snapshots, backbone.event_snapshots TO backbone_reader;
GRANT SELECT, DELETE ON backbone.entity_snapshots, backbone.stream_snapshots, backbone.event_snapshots TO backbone_redactor;

-- No snapshot may keep a redacted value: a redaction deletes the snapshots that may have
-- folded the event. Its lock waits for transactions that save a snapshot; later ones see
-- the redaction and save nothing.
GRANT CREATE ON SCHEMA backbone TO backbone_redactor;
ALTER FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) RENAME TO replace_payload;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION backbone.redact_payload(
    of_partition_id integer, of_sequence bigint, of_pointers text[], of_request uuid,
    new_salt bytea, new_payload json, old_hash bytea, new_hash bytea
) RETURNS backbone.pii_redactions
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    done backbone.pii_redactions%ROWTYPE;
BEGIN
    LOCK TABLE backbone.entity_snapshots, backbone.stream_snapshots, backbone.event_snapshots IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO done FROM backbone.replace_payload(of_partition_id, of_sequence, of_pointers, of_request, new_salt, new_payload, old_hash, new_hash);
    DELETE FROM backbone.entity_snapshots s WHERE s.partition_id = of_partition_id AND s.as_of_sequence >= of_sequence;
    DELETE FROM backbone.event_snapshots s WHERE s.partition_id = of_partition_id AND s.sequence >= of_sequence;
    DELETE FROM backbone.stream_snapshots s USING backbone.events e
    WHERE e.partition_id = of_partition_id AND e.sequence = of_sequence
      AND s.partition_id = of_partition_id AND s.stream_type = e.stream_type AND s.stream_id = e.stream_id AND s.version >= e.stream_version;
    RETURN done;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) TO backbone_eraser;
ALTER FUNCTION backbone.redact_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) OWNER TO backbone_redactor;
REVOKE ALL ON FUNCTION backbone.replace_payload(integer, bigint, text[], uuid, bytea, json, bytea, bytea) FROM backbone_eraser;
REVOKE CREATE ON SCHEMA backbone FROM backbone_redactor;
