-- +goose Up

-- The position of a publisher to a cluster of a message broker. A cursor belongs to the
-- highest term that began on it; a worker of a lower term cannot move it.
CREATE TABLE backbone.publisher_cursors (
    published_through bigint NOT NULL CHECK (published_through >= 0),
    term              bigint NOT NULL CHECK (term > 0),
    moved_at          timestamptz,
    failed_at         timestamptz,
    partition_id      integer NOT NULL CHECK (partition_id > 0),
    failures          integer NOT NULL DEFAULT 0, -- in a row
    publisher         text COLLATE "C" NOT NULL,
    last_error        text, -- code, never a value
    CONSTRAINT publisher_cursors_pkey PRIMARY KEY (publisher, partition_id)
) WITH (fillfactor = 50);

GRANT SELECT, INSERT, UPDATE ON backbone.publisher_cursors TO backbone_app;
GRANT SELECT ON backbone.publisher_cursors TO backbone_reader;

-- The log with the columns that Debezium's outbox router reads by default. The
-- sequence has no gaps within a partition_id and grows in the order of commits, so that
-- a reader that continues after the last pair (partition_id, sequence) misses nothing. It
-- contains stored payloads: personal values are sealed. The view runs with the rights of
-- its owner; its readers have no right on either table.
CREATE VIEW backbone.outbox AS
SELECT
    e.id,
    e.stream_type AS aggregatetype,
    e.stream_id AS aggregateid,
    e.type,
    p.payload, -- data, dimensions, entity_refs; NULL while archived
    e.recorded_at AS "timestamp",
    e.partition_id,
    e.sequence,
    e.tenant_id,
    e.legal_entity,
    e.stream_version,
    e.schema_version,
    e.occurred_at,
    e.effective_date,
    e.caused_by,
    e.caused_by_partition,
    e.intent_id,
    e.correlation_id
FROM backbone.events e
LEFT JOIN backbone.event_payloads p ON p.partition_id = e.partition_id AND p.sequence = e.sequence;

GRANT USAGE ON SCHEMA backbone TO backbone_outbox_reader;
GRANT SELECT ON backbone.outbox TO backbone_outbox_reader;
