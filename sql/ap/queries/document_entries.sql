-- A posting repeats vendor and due date of the body that it posts. DocumentInsert comes before
-- it in a transaction, and DocumentSettlementInsert after it.

-- name: DocumentPostingInsert :exec
INSERT INTO ap.document_entries (
    partition_id, version, sequence, effective_date, event_id, document_id, action, amount, functional_amount, functional_currency, currency,
    body_sequence, due_date, vendor_id
)
SELECT
    @partition_id::integer, @version::integer, e.sequence, e.effective_date, e.event_id, e.document_id, 'posted', e.amount::numeric,
    e.functional_amount::numeric, e.functional_currency, e.currency, b.sequence, coalesce(b.due_date, '-infinity'), b.vendor_id
FROM (
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@effective_dates::date[]) AS effective_date,
        unnest(@event_ids::uuid[]) AS event_id,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@amounts::text[]) AS amount,
        unnest(@functional_amounts::text[]) AS functional_amount,
        unnest(@functional_currencies::text[]) AS functional_currency,
        unnest(@currencies::text[]) AS currency
) AS e
CROSS JOIN LATERAL (
    SELECT
        d.sequence,
        d.due_date,
        d.vendor_id
    FROM ap.documents AS d
    WHERE d.partition_id = @partition_id AND d.version = @version AND d.document_id = e.document_id AND d.sequence < e.sequence
    ORDER BY d.sequence DESC
    LIMIT 1
) AS b
ON CONFLICT DO NOTHING;

-- A settlement changes what the latest posting has opened. An empty amount takes all of it back.

-- name: DocumentSettlementInsert :exec
INSERT INTO ap.document_entries (
    partition_id, version, sequence, effective_date, event_id, document_id, action, amount, functional_amount, functional_currency, currency,
    body_sequence, due_date, vendor_id, counterpart
)
SELECT
    @partition_id::integer, @version::integer, e.sequence, e.effective_date, e.event_id, e.document_id, e.action,
    coalesce(nullif(e.amount, '')::numeric, -p.amount), coalesce(nullif(e.functional_amount, '')::numeric, -p.functional_amount),
    p.functional_currency, p.currency, p.body_sequence, p.due_date, p.vendor_id, e.counterpart
FROM (
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@effective_dates::date[]) AS effective_date,
        unnest(@event_ids::uuid[]) AS event_id,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@actions::text[]) AS action,
        unnest(@amounts::text[]) AS amount,
        unnest(@functional_amounts::text[]) AS functional_amount,
        unnest(@counterparts::text[]) AS counterpart
) AS e
CROSS JOIN LATERAL (
    SELECT
        h.amount,
        h.functional_amount,
        h.functional_currency,
        h.currency,
        h.body_sequence,
        h.due_date,
        h.vendor_id
    FROM ap.document_entries AS h
    WHERE
        h.partition_id = @partition_id AND h.version = @version AND h.document_id = e.document_id AND h.sequence < e.sequence
        AND h.action = 'posted'
    ORDER BY h.sequence DESC
    LIMIT 1
) AS p
ON CONFLICT DO NOTHING;
