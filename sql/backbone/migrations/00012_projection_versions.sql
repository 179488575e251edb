-- +goose Up

-- Several versions of a projection at the same time. A number is never assigned again: the
-- row of a dropped version stays. code is the version that the module declares for the
-- handler that builds it.
ALTER TABLE backbone.projections
    ADD COLUMN code           integer,
    ADD COLUMN self_switching boolean NOT NULL DEFAULT false,
    ADD COLUMN role           text NOT NULL DEFAULT 'active' CHECK (role IN ('building', 'active', 'retained', 'dropping', 'dropped'));

-- Projections from before there was a register: the newest version is the one that readers
-- see. The others are not used again.
INSERT INTO backbone.projections (name, version, status, settings, revision, created_at, changed_at, changed_by)
SELECT c.projection, max(c.version), 'running',
       '{"checkpoint":{"mode":"synchronous"},"max_attempts":5,"retry_ms":1000,"retry_max_ms":60000,"on_poison":"stop_partition","single_instance":false}',
       1, max(c.updated_at), max(c.updated_at), 'system'
FROM backbone.projection_checkpoints c
WHERE NOT EXISTS (SELECT FROM backbone.projections p WHERE p.name = c.projection)
GROUP BY c.projection;

UPDATE backbone.projections SET code = version;
UPDATE backbone.projections p SET role = 'dropped'
WHERE EXISTS (SELECT FROM backbone.projections q WHERE q.name = p.name AND q.version > p.version);
ALTER TABLE backbone.projections ALTER COLUMN code SET NOT NULL;

CREATE UNIQUE INDEX projections_active ON backbone.projections (name) WHERE role = 'active';
CREATE UNIQUE INDEX projections_building ON backbone.projections (name) WHERE role = 'building';
CREATE UNIQUE INDEX projections_retained ON backbone.projections (name) WHERE role = 'retained';

GRANT DELETE ON backbone.projection_checkpoints TO backbone_app;
