-- +goose Up

-- Every tenant has a registry of event types of its own, with its own chain and count of changes;
-- '' is the shared registry of the built-in modules (ADR 0045). The column has another name so
-- that a node of the release before, which would change the shared registry for a tenant, cannot.
ALTER TABLE backbone.event_type_generation DROP COLUMN singleton;
ALTER TABLE backbone.event_type_generation RENAME COLUMN generation TO last_change;
ALTER TABLE backbone.event_type_generation ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE backbone.event_type_generation ALTER COLUMN tenant_id DROP DEFAULT;
ALTER TABLE backbone.event_type_generation ADD CONSTRAINT event_type_generation_pkey PRIMARY KEY (tenant_id);
GRANT INSERT ON backbone.event_type_generation TO backbone_app;

DROP INDEX backbone.event_type_history_order;
CREATE UNIQUE INDEX event_type_history_order ON backbone.event_type_history (tenant_id, change, schema_version);

ALTER TABLE backbone.event_type_history DROP CONSTRAINT event_type_history_action_check;
ALTER TABLE backbone.event_type_history ADD CONSTRAINT event_type_history_action_check CHECK (action IN (
    'registry.type.registered', 'registry.type.deprecated', 'registry.type.reactivated',
    'registry.type.proposed', 'registry.type.deprecation_proposed', 'registry.type.reactivation_proposed', 'registry.type.rejected',
    'registry.type.moved'
));

-- ChainChecksum of domain/eventtype.
-- +goose StatementBegin
CREATE FUNCTION pg_temp.registry_link(
    before bytea, number bigint, action text, type text, schema_version integer, digest bytea, actor text, reason text, changed_at timestamptz
) RETURNS bytea LANGUAGE sql AS $$
    SELECT sha256(int4send(20) || convert_to('backbone/registry/v1', 'UTF8') || before || int8send(number)
        || int4send(octet_length(action)) || convert_to(action, 'UTF8')
        || int4send(octet_length(type)) || convert_to(type, 'UTF8')
        || int4send(schema_version) || digest
        || int4send(octet_length(actor)) || convert_to(actor, 'UTF8')
        || int4send(octet_length(reason)) || convert_to(reason, 'UTF8')
        || int8send((extract(epoch FROM changed_at) * 1000000)::bigint))
$$;
-- +goose StatementEnd

-- Types that administrators registered go to the tenants that use them: to the only tenant; or to
-- each tenant that has events of the type, and to the tenant of the person who registered it. Each
-- gets the type with all its changes. The shared chain keeps what was recorded in it, and says at its end
-- that the versions were moved.
-- +goose StatementBegin
DO $$
DECLARE
    tenants text[] := ARRAY (SELECT DISTINCT u.tenant_id FROM (
        SELECT l.tenant_id FROM backbone.legal_entities l UNION SELECT p.tenant_id FROM backbone.principals p) u ORDER BY 1);
    tenant  text;
    kind    text;
    link    bytea;
    moved   bigint;
    r       record;
BEGIN
    CREATE TEMPORARY TABLE moving ON COMMIT DROP AS
        SELECT DISTINCT t.tenant_id, v.type
        FROM backbone.event_type_registry v CROSS JOIN unnest(tenants) AS t (tenant_id)
        WHERE v.tenant_id = '' AND v.registered_by NOT LIKE 'module:%' AND (
            cardinality(tenants) = 1
            OR EXISTS (SELECT FROM backbone.principals p WHERE p.tenant_id = t.tenant_id AND p.person_id = v.registered_by)
            OR EXISTS (SELECT FROM backbone.legal_entities l WHERE l.tenant_id = t.tenant_id
                AND EXISTS (SELECT FROM backbone.events e WHERE e.type = v.type AND e.partition_id = l.partition_id)));

    INSERT INTO backbone.event_type_registry (tenant_id, type, schema_version, module, retention_class, is_active, document, registered_at, registered_by)
    SELECT m.tenant_id, v.type, v.schema_version, v.module, v.retention_class, v.is_active, v.document, v.registered_at, v.registered_by
    FROM backbone.event_type_registry v JOIN moving m ON m.type = v.type
    WHERE v.tenant_id = '';

    FOREACH tenant IN ARRAY tenants LOOP
        -- ChainStart of domain/eventtype
        link := sha256(int4send(27) || convert_to('backbone/registry/tenant/v1', 'UTF8') || int4send(octet_length(tenant)) || convert_to(tenant, 'UTF8'));
        FOR r IN
            SELECT h.*, dense_rank() OVER (ORDER BY h.change) AS number
            FROM backbone.event_type_history h JOIN moving m ON m.type = h.type
            WHERE h.tenant_id = '' AND m.tenant_id = tenant
            ORDER BY h.change, h.schema_version
        LOOP
            link := pg_temp.registry_link(link, r.number, r.action, r.type, r.schema_version, r.digest, r.actor, r.reason, r.changed_at);
            INSERT INTO backbone.event_type_history (tenant_id, type, schema_version, change, action, digest, actor, reason, changed_at, checksum)
            VALUES (tenant, r.type, r.schema_version, r.number, r.action, r.digest, r.actor, r.reason, r.changed_at, link);
            INSERT INTO backbone.event_type_generation (tenant_id, last_change) VALUES (tenant, r.number)
            ON CONFLICT (tenant_id) DO UPDATE SET last_change = excluded.last_change;
        END LOOP;
    END LOOP;

    -- One change of the shared registry for each type.
    FOR kind IN SELECT DISTINCT v.type FROM backbone.event_type_registry v WHERE v.tenant_id = '' AND v.registered_by NOT LIKE 'module:%' ORDER BY 1 LOOP
        UPDATE backbone.event_type_generation SET last_change = last_change + 1 WHERE tenant_id = '' RETURNING last_change INTO moved;
        FOR r IN
            SELECT v.schema_version, sha256(convert_to(v.document::text, 'UTF8')) AS digest, date_trunc('microseconds', now()) AS changed_at
            FROM backbone.event_type_registry v WHERE v.tenant_id = '' AND v.type = kind ORDER BY v.schema_version
        LOOP
            SELECT h.checksum INTO STRICT link FROM backbone.event_type_history h WHERE h.tenant_id = '' ORDER BY h.change DESC, h.schema_version DESC LIMIT 1;
            link := pg_temp.registry_link(link, moved, 'registry.type.moved', kind, r.schema_version, r.digest, 'backbone', 'to the registries of tenants', r.changed_at);
            INSERT INTO backbone.event_type_history (tenant_id, type, schema_version, change, action, digest, actor, reason, changed_at, checksum)
            VALUES ('', kind, r.schema_version, moved, 'registry.type.moved', r.digest, 'backbone', 'to the registries of tenants', r.changed_at, link);
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd
