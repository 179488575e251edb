-- +goose Up

-- A version may cover one legal entity only (scope, a partition_id; 0: all): it is built
-- while readers see another version, which it replaces in that legal entity alone. A
-- version may also be a snapshot: a frozen copy that a later one starts from (base).
-- Saving: it is being copied.
ALTER TABLE backbone.projections
    ADD COLUMN scope integer NOT NULL DEFAULT 0 CHECK (scope >= 0),
    ADD COLUMN base  integer NOT NULL DEFAULT 0 CHECK (base >= 0), -- version of a snapshot; 0: the beginning of the log
    DROP CONSTRAINT projections_role_check,
    ADD CONSTRAINT projections_role_check CHECK (role IN ('building', 'active', 'retained', 'saving', 'saved', 'dropping', 'dropped'));

DROP INDEX backbone.projections_building, backbone.projections_retained;
CREATE UNIQUE INDEX projections_building ON backbone.projections (name, scope) WHERE role = 'building';
CREATE UNIQUE INDEX projections_retained ON backbone.projections (name, scope) WHERE role = 'retained';
CREATE UNIQUE INDEX projections_saving ON backbone.projections (name, scope) WHERE role = 'saving';

-- generation grows when rows below a checkpoint are replaced, so that the next page of a
-- report is refused. redactions is the number of the partition's redactions when the
-- first row was computed: the rows may still hold values of later redactions.
ALTER TABLE backbone.projection_checkpoints
    ADD COLUMN generation bigint NOT NULL DEFAULT 0,
    ADD COLUMN redactions bigint NOT NULL DEFAULT 0;

-- The part of a snapshot for one partition: the rows of its version as they were at the
-- sequence. taken_at NULL: they are not copied yet.
CREATE TABLE backbone.projection_snapshots (
    sequence      bigint NOT NULL CHECK (sequence >= 0),
    redactions    bigint NOT NULL,
    row_count     bigint NOT NULL,
    taken_at      timestamptz,
    last_event_at timestamptz,
    partition_id  integer NOT NULL,
    version       integer NOT NULL,
    projection    text COLLATE "C" NOT NULL,
    CONSTRAINT projection_snapshots_pkey PRIMARY KEY (projection, version, partition_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.projection_snapshots TO backbone_app;
GRANT SELECT ON backbone.projection_snapshots TO backbone_reader;

-- Snapshots of projections as JSON documents were not used: read models are tables.
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
    LOCK TABLE backbone.entity_snapshots, backbone.stream_snapshots IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO done FROM backbone.replace_payload(of_partition_id, of_sequence, of_pointers, of_request, new_salt, new_payload, old_hash, new_hash);
    DELETE FROM backbone.entity_snapshots s WHERE s.partition_id = of_partition_id AND s.as_of_sequence >= of_sequence;
    DELETE FROM backbone.stream_snapshots s USING backbone.events e
    WHERE e.partition_id = of_partition_id AND e.sequence = of_sequence
      AND s.partition_id = of_partition_id AND s.stream_type = e.stream_type AND s.stream_id = e.stream_id AND s.version >= e.stream_version;
    RETURN done;
END
$$;
-- +goose StatementEnd

DROP TABLE backbone.event_snapshots;
