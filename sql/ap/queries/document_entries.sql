-- name: DocumentEntryInsert :exec
INSERT INTO ap.document_entries (
    partition_id, version, sequence, effective_date, event_id, document_id, action, amount, functional_amount, functional_currency
)
SELECT
    @partition_id::integer, @version::integer, e.sequence, e.effective_date, e.event_id, e.document_id, e.action, e.amount::numeric, e.functional_amount::numeric, e.functional_currency
FROM (
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@effective_dates::date[]) AS effective_date,
        unnest(@event_ids::uuid[]) AS event_id,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@actions::text[]) AS action,
        unnest(@amounts::text[]) AS amount,
        unnest(@functional_amounts::text[]) AS functional_amount,
        unnest(@functional_currencies::text[]) AS functional_currency
) AS e
ON CONFLICT DO NOTHING;
