-- +goose Up

-- The registry's history is a chain like those of the legal entities: each row's checksum
-- covers the row and the checksum before it (domain/eventtype/chain.go), so that
-- `backbone verify` finds a row that was edited, removed or inserted.
ALTER TABLE backbone.event_type_history ADD COLUMN checksum bytea CHECK (octet_length(checksum) = 32);

-- Changes from before there was a chain.
-- +goose StatementBegin
DO $$
DECLARE
    before bytea := decode(repeat('00', 32), 'hex');
    r      record;
BEGIN
    FOR r IN SELECT h.* FROM backbone.event_type_history h ORDER BY h.change, h.schema_version LOOP
        before := sha256(int4send(20) || convert_to('backbone/registry/v1', 'UTF8') || before || int8send(r.change)
            || int4send(octet_length(r.action)) || convert_to(r.action, 'UTF8')
            || int4send(octet_length(r.type)) || convert_to(r.type, 'UTF8')
            || int4send(r.schema_version) || r.digest
            || int4send(octet_length(r.actor)) || convert_to(r.actor, 'UTF8')
            || int4send(octet_length(r.reason)) || convert_to(r.reason, 'UTF8')
            || int8send((extract(epoch FROM r.changed_at) * 1000000)::bigint));
        UPDATE backbone.event_type_history SET checksum = before
        WHERE tenant_id = r.tenant_id AND type = r.type AND schema_version = r.schema_version AND change = r.change;
    END LOOP;
END
$$;
-- +goose StatementEnd

ALTER TABLE backbone.event_type_history ALTER COLUMN checksum SET NOT NULL;

-- The order of the chain, whose end every change reads.
CREATE UNIQUE INDEX event_type_history_order ON backbone.event_type_history (change, schema_version);

-- The second line of defence, as for the log itself.
CREATE OR REPLACE TRIGGER event_type_history_append_only BEFORE UPDATE OR DELETE ON backbone.event_type_history
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('skeleton');
CREATE OR REPLACE TRIGGER event_type_history_no_truncate BEFORE TRUNCATE ON backbone.event_type_history
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('skeleton');
CREATE OR REPLACE TRIGGER event_type_registry_append_only BEFORE UPDATE OR DELETE ON backbone.event_type_registry
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('skeleton');
CREATE OR REPLACE TRIGGER event_type_registry_no_truncate BEFORE TRUNCATE ON backbone.event_type_registry
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('skeleton');

-- Verification compares the end of the chain with it.
GRANT SELECT ON backbone.event_type_generation TO backbone_reader;
