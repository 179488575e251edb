-- +goose Up

-- Signed roots of the tree over the global log (c2sp.org/tlog-checkpoint). The incarnation is 1 at first, and
-- another after each restore from a backup.
CREATE TABLE backbone.log_checkpoints (
    size        bigint NOT NULL CHECK (size > 0),
    incarnation integer NOT NULL CHECK (incarnation > 0),
    root        bytea NOT NULL CHECK (octet_length(root) = 32),
    note        text NOT NULL CHECK (octet_length(note) BETWEEN 1 AND 16384),
    CONSTRAINT log_checkpoints_pkey PRIMARY KEY (size, incarnation),
    CONSTRAINT log_checkpoints_newest UNIQUE (incarnation, size)
);

-- Records a checkpoint of what the global log has, unless there is one as new or newer; says whether it did.
-- +goose StatementBegin
CREATE FUNCTION backbone.record_checkpoint(new_incarnation integer, new_size bigint, new_root bytea, new_note text) RETURNS boolean
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF new_size > coalesce((SELECT r.first_position + r.count FROM backbone.log_ranges r ORDER BY r.first_position DESC LIMIT 1), 0) THEN
        RAISE EXCEPTION 'the global log has not so many events' USING ERRCODE = 'check_violation', CONSTRAINT = 'log_checkpoints_size';
    END IF;
    -- Incarnations are counted by restores: without a bound one call would be the last.
    IF new_incarnation > coalesce((SELECT max(c.incarnation) FROM backbone.log_checkpoints c), 0) + 1000 THEN
        RAISE EXCEPTION 'the incarnation is too high' USING ERRCODE = 'check_violation', CONSTRAINT = 'log_checkpoints_incarnation';
    END IF;
    INSERT INTO backbone.log_checkpoints (incarnation, size, root, note)
    SELECT new_incarnation, new_size, new_root, new_note
    WHERE NOT EXISTS (SELECT FROM backbone.log_checkpoints c WHERE (c.incarnation, c.size) >= (new_incarnation, new_size))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER log_checkpoints_append_only BEFORE UPDATE OR DELETE ON backbone.log_checkpoints
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('checkpoint');
CREATE TRIGGER log_checkpoints_no_truncate BEFORE TRUNCATE ON backbone.log_checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('checkpoint');

REVOKE ALL ON FUNCTION backbone.record_checkpoint(integer, bigint, bytea, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.record_checkpoint(integer, bigint, bytea, text) TO backbone_app;
GRANT SELECT, INSERT ON backbone.log_checkpoints TO backbone_sealer;
GRANT SELECT ON backbone.log_checkpoints TO backbone_app, backbone_reader;
GRANT CREATE ON SCHEMA backbone TO backbone_sealer;
ALTER FUNCTION backbone.record_checkpoint(integer, bigint, bytea, text) OWNER TO backbone_sealer;
REVOKE CREATE ON SCHEMA backbone FROM backbone_sealer;
