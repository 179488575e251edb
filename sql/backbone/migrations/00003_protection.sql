-- +goose Up

-- A second line of defence on plain PostgreSQL; the first is that no role has the
-- privilege. Nothing depends on these triggers.
-- +goose StatementBegin
CREATE FUNCTION backbone.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_ARGV[0] = 'payload' AND TG_OP <> 'TRUNCATE'
        AND current_user IN ('backbone_redactor', 'backbone_archiver') THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    RAISE EXCEPTION '% on %.% is refused: the log is append-only', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

-- Row triggers are cloned to every physical partition when it is attached;
-- statement triggers are not, so each partition gets its own TRUNCATE trigger.
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON backbone.events
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('skeleton');
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON backbone.events
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('skeleton');
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON backbone.events_default
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('skeleton');
CREATE TRIGGER payloads_append_only BEFORE UPDATE OR DELETE ON backbone.event_payloads
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('payload');
CREATE TRIGGER payloads_no_truncate BEFORE TRUNCATE ON backbone.event_payloads
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('payload');
CREATE TRIGGER payloads_no_truncate BEFORE TRUNCATE ON backbone.event_payloads_default
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('payload');
CREATE TRIGGER partition_heads_never_change BEFORE UPDATE OR DELETE ON backbone.partition_heads
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('skeleton');

-- Creates a legal entity: directory row, lock row with the genesis checksum, and, for the
-- first physical_partitions legal entities, tables of their own. Only the owner may create
-- tables, hence SECURITY DEFINER. CREATE TABLE and ATTACH instead of PARTITION OF, and a
-- short lock timeout, so that appends never queue up behind an open reader; the caller
-- tries again. Returns whether it created tables.
-- +goose StatementBegin
CREATE FUNCTION backbone.create_legal_entity(
    new_partition_id integer, new_tenant_id text, new_code text, new_name text, new_time_zone text,
    new_status text, new_created_at timestamptz, new_genesis bytea, physical_partitions integer
) RETURNS boolean
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    fixed    backbone.installation%ROWTYPE;
    genesis  bytea;
    existing integer;
    log_name bytea;
BEGIN
    SELECT * INTO STRICT fixed FROM backbone.installation;
    IF new_partition_id >> 19 <> fixed.deployment THEN
        RAISE EXCEPTION 'partition id of another deployment' USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_entities_deployment';
    END IF;
    -- The frozen format: SHA-256(L(domain) || L(log name) || u32 partition id).
    log_name := convert_to(fixed.log_name, 'UTF8');
    genesis := sha256(int4send(19) || convert_to('backbone/genesis/v1', 'UTF8')
        || int4send(octet_length(log_name)) || log_name || int4send(new_partition_id));
    IF genesis <> new_genesis THEN
        RAISE EXCEPTION 'genesis checksum does not match' USING ERRCODE = 'check_violation', CONSTRAINT = 'partition_heads_genesis';
    END IF;

    INSERT INTO backbone.legal_entities (partition_id, tenant_id, code, name, time_zone, status, created_at)
    VALUES (new_partition_id, new_tenant_id, new_code, new_name, new_time_zone, new_status, new_created_at);
    INSERT INTO backbone.partition_heads (partition_id, genesis) VALUES (new_partition_id, new_genesis);

    SELECT count(*) - 1 INTO existing
    FROM pg_inherits WHERE inhparent = 'backbone.events'::regclass;
    -- Once the default partition holds rows an attachment would have to scan it while
    -- everybody waits, so from then on it is where new legal entities live.
    IF existing >= physical_partitions OR EXISTS (SELECT FROM backbone.events_default) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE backbone.events_p%s (LIKE backbone.events INCLUDING ALL)', new_partition_id);
    EXECUTE format('CREATE TABLE backbone.event_payloads_p%s (LIKE backbone.event_payloads INCLUDING ALL)', new_partition_id);
    EXECUTE format('CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON backbone.events_p%s
        FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change(''skeleton'')', new_partition_id);
    EXECUTE format('CREATE TRIGGER payloads_no_truncate BEFORE TRUNCATE ON backbone.event_payloads_p%s
        FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change(''payload'')', new_partition_id);
    EXECUTE format('ALTER TABLE backbone.events ATTACH PARTITION backbone.events_p%s FOR VALUES IN (%s)', new_partition_id, new_partition_id);
    EXECUTE format('ALTER TABLE backbone.event_payloads ATTACH PARTITION backbone.event_payloads_p%s FOR VALUES IN (%s)', new_partition_id, new_partition_id);
    RETURN true;
END
$$;
-- +goose StatementEnd
