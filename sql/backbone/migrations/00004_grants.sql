-- +goose Up

-- The privileges of the roles; a test reads the catalog and fails on any other grant.
-- PUBLIC has no privilege, and no role has TRUNCATE, REFERENCES or TRIGGER.
REVOKE ALL ON FUNCTION backbone.refuse_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.create_legal_entity(integer, text, text, text, text, text, timestamptz, bytea, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.create_legal_entity(integer, text, text, text, text, text, timestamptz, bytea, integer) TO backbone_app;

GRANT USAGE ON SCHEMA backbone TO backbone_app, backbone_reader, backbone_redactor, backbone_archiver, backbone_sealer, backbone_eraser;

GRANT SELECT, INSERT ON
    backbone.installation, backbone.events, backbone.event_payloads, backbone.event_keys, backbone.business_keys,
    backbone.event_types, backbone.event_type_registry
    TO backbone_app;
GRANT SELECT, INSERT, UPDATE ON
    backbone.principals, backbone.stream_versions, backbone.number_series, backbone.intents, backbone.projection_checkpoints
    TO backbone_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.idempotency_keys TO backbone_app;
GRANT SELECT ON backbone.legal_entities TO backbone_app;
-- A row lock needs the right to UPDATE some column. The append engine never writes the head
-- row, and has no right to write its genesis.
GRANT SELECT, UPDATE (partition_id) ON backbone.partition_heads TO backbone_app;
GRANT SELECT, UPDATE ON backbone.event_type_generation TO backbone_app;

GRANT SELECT ON
    backbone.installation, backbone.legal_entities, backbone.partition_heads, backbone.events, backbone.event_payloads,
    backbone.event_keys, backbone.stream_versions, backbone.business_keys, backbone.event_types,
    backbone.event_type_registry, backbone.projection_checkpoints
    TO backbone_reader;

GRANT SELECT ON backbone.events, backbone.event_payloads TO backbone_redactor, backbone_archiver, backbone_eraser;
GRANT SELECT ON backbone.events TO backbone_sealer;
GRANT SELECT ON backbone.partition_heads, backbone.stream_versions, backbone.event_keys TO backbone_archiver, backbone_sealer;
GRANT SELECT ON backbone.event_types, backbone.event_type_registry TO backbone_eraser;
