-- +goose Up

-- Event types of tenants are events of their administrative logs (ADR 0052). The chains of
-- changes from before stay as they are: nothing is added to them, and the first node of this
-- release records their ends in the logs.
CREATE TRIGGER event_type_history_sealed BEFORE INSERT ON backbone.event_type_history
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('skeleton');
REVOKE INSERT ON backbone.event_type_history FROM backbone_app;
CREATE TRIGGER event_type_generation_sealed BEFORE INSERT OR UPDATE OR DELETE ON backbone.event_type_generation
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('skeleton');
-- A row lock needs the right to UPDATE some column.
REVOKE INSERT, UPDATE ON backbone.event_type_generation FROM backbone_app;
GRANT UPDATE (tenant_id) ON backbone.event_type_generation TO backbone_app;
ALTER TABLE backbone.event_type_registry ADD CONSTRAINT event_type_registry_sealed CHECK (tenant_id = '') NOT VALID;

-- A name is a built-in type's or one of tenants for ever. The column has no default, so that a
-- node of the release before cannot reserve a name.
ALTER TABLE backbone.event_types ADD COLUMN is_shared boolean;
UPDATE backbone.event_types t SET is_shared = EXISTS (
    SELECT FROM backbone.event_type_registry r
    WHERE r.type = t.type AND r.tenant_id = ''
        AND NOT EXISTS (
            SELECT FROM backbone.event_type_history h
            WHERE h.tenant_id = '' AND h.type = r.type AND h.schema_version = r.schema_version AND h.action = 'registry.type.moved'
        )
);
ALTER TABLE backbone.event_types ALTER COLUMN is_shared SET NOT NULL;
