-- name: DocumentInsert :exec
INSERT INTO ap.documents (
    partition_id, version, sequence, invoice_date, due_date, document_id, vendor_id, kind, invoice_number, currency, dimensions,
    action, total, discount, body
)
SELECT
    @partition_id::integer, @version::integer, d.sequence, nullif(d.invoice_date, '')::date, nullif(d.due_date, '')::date, d.document_id, d.vendor_id,
    d.kind, d.invoice_number, d.currency, d.dimensions::jsonb, d.action, d.total::numeric, nullif(d.discount, '')::json, d.body::json
FROM (
    -- set-returning functions in one list advance together
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@invoice_dates::text[]) AS invoice_date,
        unnest(@due_dates::text[]) AS due_date,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@vendor_ids::text[]) AS vendor_id,
        unnest(@kinds::text[]) AS kind,
        unnest(@invoice_numbers::text[]) AS invoice_number,
        unnest(@currencies::text[]) AS currency,
        unnest(@dimensions::text[]) AS dimensions,
        unnest(@actions::text[]) AS action,
        unnest(@totals::text[]) AS total,
        unnest(@discounts::text[]) AS discount,
        unnest(@bodies::text[]) AS body
) AS d
ON CONFLICT DO NOTHING;

-- name: DocumentStepInsert :exec
INSERT INTO ap.document_steps (
    partition_id, version, sequence, recorded_at, effective_date, event_id, document_id, action, actor_type, actor_id, on_behalf_of, data
)
SELECT
    @partition_id::integer, @version::integer, s.sequence, s.recorded_at, s.effective_date, s.event_id, s.document_id, s.action, s.actor_type,
    s.actor_id, s.on_behalf_of, s.data::json
FROM (
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@recorded_ats::timestamptz[]) AS recorded_at,
        unnest(@effective_dates::date[]) AS effective_date,
        unnest(@event_ids::uuid[]) AS event_id,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@actions::text[]) AS action,
        unnest(@actor_types::text[]) AS actor_type,
        unnest(@actor_ids::text[]) AS actor_id,
        unnest(@on_behalf_ofs::text[]) AS on_behalf_of,
        unnest(@data::text[]) AS data
) AS s
ON CONFLICT DO NOTHING;

-- One statement for each document: joined with a set of them, a plan that was cached while the
-- table was small reads all rows of the legal entity until statistics are collected.

-- name: DocumentStateEnd :batchexec
UPDATE ap.document_states AS s
SET until_sequence = @sequence
WHERE
    s.partition_id = @partition_id AND s.version = @version AND s.document_id = @document_id
    AND s.sequence < @sequence AND s.until_sequence > @sequence;

-- name: DocumentStateInsert :exec
INSERT INTO ap.document_states (partition_id, version, sequence, until_sequence, recorded_at, document_id, state)
SELECT
    @partition_id::integer, @version::integer, n.sequence,
    coalesce(lead(n.sequence) OVER (PARTITION BY n.document_id ORDER BY n.sequence), 9223372036854775807), n.recorded_at, n.document_id, n.state
FROM (
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@recorded_ats::timestamptz[]) AS recorded_at,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@states::text[]) AS state
) AS n
ON CONFLICT DO NOTHING;

-- HasEarlierRows reports whether an earlier release wrote the version's rows: only open items
-- can be read from them.

-- name: HasEarlierRows :one
SELECT EXISTS (SELECT 1 FROM ap.documents AS d WHERE d.partition_id = @partition_id AND d.version = @version AND d.body IS NULL);
