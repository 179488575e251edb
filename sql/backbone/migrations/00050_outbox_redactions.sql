-- +goose Up

-- A redacted payload says so in the view too. The column is the last one: the positions of the
-- others stay, and so do the view's owner and rights.
CREATE OR REPLACE VIEW backbone.outbox AS
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
    e.correlation_id,
    p.redactions -- [{request, pointers, at}] in order; NULL if nothing was redacted
FROM backbone.events e
LEFT JOIN backbone.event_payloads p ON p.partition_id = e.partition_id AND p.sequence = e.sequence;
