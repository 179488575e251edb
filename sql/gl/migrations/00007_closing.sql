-- +goose Up

-- What a period's end needs to know, as it was known at each sequence: definitions and postings
-- of recurring journals, allocations and their runs, reversals due, revaluations, pairs of
-- legal entities, intents that wait. A row has no text that people wrote.
CREATE TABLE gl.close_steps (
    sequence     bigint NOT NULL,
    recorded_at  timestamptz NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    day          date, -- on which the step counts; null: on none or on any
    event_id     uuid NOT NULL,
    tenant_id    text COLLATE "C" NOT NULL,
    legal_entity text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    item         text COLLATE "C" NOT NULL, -- id of the journal, pair, allocation or intent
    counterparty text COLLATE "C" NOT NULL, -- legal entity that a pair was begun with, else ''
    actor_id     text NOT NULL,
    data         json NOT NULL,
    CONSTRAINT close_steps_pkey PRIMARY KEY (partition_id, version, sequence, kind)
);

CREATE INDEX close_steps_kind ON gl.close_steps (partition_id, version, kind, item, sequence);
CREATE INDEX close_steps_day ON gl.close_steps (partition_id, version, kind, day, sequence);
-- Both sides of a pair, which are in two partitions of one tenant.
CREATE INDEX close_steps_pair ON gl.close_steps (tenant_id, version, item, kind) WHERE kind LIKE 'pair_%';
CREATE INDEX close_steps_counterparty ON gl.close_steps (tenant_id, version, counterparty) WHERE counterparty <> '';

-- The periods of the fiscal years, for the reports of subledgers, which may read this view too.
CREATE VIEW gl.period_spans WITH (security_invoker = true) AS
SELECT c.partition_id, c.version, c.sequence, c.fiscal_year, c.period, c.period_start, c.period_end
FROM gl.calendar_periods AS c;

GRANT SELECT, INSERT, UPDATE, DELETE ON gl.close_steps TO backbone_app;
GRANT SELECT ON gl.close_steps TO backbone_reader;
GRANT SELECT ON gl.period_spans TO backbone_app, backbone_reader;
