-- name: DocumentInsert :exec
INSERT INTO ap.documents (
    partition_id, version, sequence, invoice_date, due_date, document_id, vendor_id, kind, invoice_number, currency, dimensions
)
SELECT
    @partition_id::integer, @version::integer, d.sequence, d.invoice_date, d.due_date, d.document_id, d.vendor_id, d.kind, d.invoice_number, d.currency, d.dimensions::jsonb
FROM (
    -- set-returning functions in one list advance together
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@invoice_dates::date[]) AS invoice_date,
        unnest(@due_dates::date[]) AS due_date,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@vendor_ids::text[]) AS vendor_id,
        unnest(@kinds::text[]) AS kind,
        unnest(@invoice_numbers::text[]) AS invoice_number,
        unnest(@currencies::text[]) AS currency,
        unnest(@dimensions::text[]) AS dimensions
) AS d
ON CONFLICT DO NOTHING;

-- Amounts are returned as text, so that no type of the client changes the digits of the
-- report. The row after the cursor is the first one; an empty filter is none.

-- name: OpenItems :many
SELECT
    d.vendor_id,
    d.document_id,
    d.invoice_number,
    d.kind,
    d.invoice_date,
    d.due_date,
    d.currency,
    t.total::text AS total,
    t.open::text AS open,
    t.open_functional::text AS open_functional,
    t.event_id::text AS event_id,
    h.holds::text AS holds,
    d.dimensions::text AS dimensions
FROM (
    SELECT
        e.document_id,
        coalesce(sum(e.amount) FILTER (WHERE e.action = 'posted'), 0) AS total,
        sum(e.amount) AS open,
        sum(e.functional_amount) AS open_functional,
        coalesce(min(e.event_id::text) FILTER (WHERE e.action = 'posted'), '') AS event_id
    FROM ap.document_entries AS e
    WHERE
        e.partition_id = @partition_id AND e.version = @version AND e.effective_date <= @as_of AND e.sequence <= @known
        AND e.functional_currency = @functional_currency
    GROUP BY e.document_id
    HAVING sum(e.amount) <> 0 OR sum(e.functional_amount) <> 0
) AS t
INNER JOIN ap.documents AS d ON d.partition_id = @partition_id AND d.version = @version AND d.document_id = t.document_id
CROSS JOIN LATERAL (
    SELECT coalesce(
        json_agg(json_build_object('hold_id', o.hold_id, 'kind', o.kind, 'blocks', o.blocks) ORDER BY o.sequence), '[]'::json
    ) AS holds
    FROM ap.document_holds AS o
    WHERE
        o.partition_id = @partition_id AND o.version = @version AND o.document_id = d.document_id AND NOT o.released
        AND o.effective_date <= @as_of AND o.sequence <= @known
        AND NOT EXISTS (
            SELECT 1
            FROM ap.document_holds AS r
            WHERE
                r.partition_id = @partition_id AND r.version = @version AND r.document_id = o.document_id AND r.hold_id = o.hold_id AND r.released
                AND r.effective_date <= @as_of AND r.sequence <= @known
        )
) AS h
WHERE
    (@vendor_id::text = '' OR d.vendor_id = @vendor_id)
    AND (@currency::text = '' OR d.currency = @currency)
    AND (@kind::text = '' OR d.kind = @kind)
    AND (@due_before::text = '' OR d.due_date < nullif(@due_before::text, '')::date)
    AND (@held::text = '' OR (json_array_length(h.holds) > 0) = (@held::text = 'true'))
    AND (d.vendor_id, d.due_date, d.document_id) > (@after_vendor_id::text, @after_due_date::date, @after_document_id::text)
ORDER BY d.vendor_id, d.due_date, d.document_id
LIMIT @page_size;
