-- Amounts are returned as text, so that no type of the client changes the digits of the
-- report. The row after the cursor is the first one; an empty filter is none. A vendor's items
-- are between it and itself.

-- name: OpenItems :many
SELECT
    t.vendor_id,
    t.document_id,
    t.body_sequence,
    d.invoice_number,
    d.kind,
    coalesce(d.invoice_date, t.due_date)::date AS invoice_date,
    t.due_date,
    d.currency,
    t.total::text AS total,
    t.open::text AS open,
    t.open_functional::text AS open_functional,
    t.event_id::text AS event_id,
    h.holds::text AS holds,
    d.dimensions::text AS dimensions,
    coalesce(d.discount::text, '')::text AS discount
FROM (
    SELECT
        e.vendor_id,
        e.due_date,
        e.document_id,
        e.body_sequence,
        coalesce(sum(e.amount) FILTER (WHERE e.action IN ('posted', 'voided')), 0) AS total,
        sum(e.amount) AS open,
        sum(e.functional_amount) AS open_functional,
        coalesce(min(e.event_id::text) FILTER (WHERE e.action = 'posted'), '') AS event_id
    FROM ap.document_entries AS e
    WHERE
        e.partition_id = @partition_id AND e.version = @version AND e.effective_date <= @as_of AND e.sequence <= @known
        AND e.functional_currency = @functional_currency
        AND e.vendor_id >= @first_vendor_id::text AND e.vendor_id <= @last_vendor_id::text
        AND (@currency::text = '' OR e.currency = @currency)
        AND (@due_before::text = '' OR e.due_date < nullif(@due_before::text, '')::date)
        AND (e.vendor_id, e.due_date, e.document_id, e.body_sequence)
        > (@after_vendor_id::text, @after_due_date::date, @after_document_id::text, @after_body_sequence::bigint)
    GROUP BY e.vendor_id, e.due_date, e.document_id, e.body_sequence
    HAVING sum(e.amount) <> 0 OR sum(e.functional_amount) <> 0
) AS t
CROSS JOIN LATERAL ( -- LIMIT tells the planner that items have one body each, so that it reads them in the order of the index
    SELECT b.document_id, b.invoice_number, b.kind, b.invoice_date, b.currency, b.dimensions, b.discount
    FROM ap.documents AS b
    WHERE b.partition_id = @partition_id AND b.version = @version AND b.document_id = t.document_id AND b.sequence = t.body_sequence
    LIMIT 1
) AS d
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
        AND NOT EXISTS ( -- a reinstatement ends the holds before it
            SELECT 1
            FROM ap.documents AS n
            WHERE
                n.partition_id = @partition_id AND n.version = @version AND n.document_id = o.document_id AND n.action = 'reinstated'
                AND n.sequence > o.sequence AND n.sequence <= @known
        )
) AS h
WHERE
    (@kind::text = '' OR d.kind = @kind)
    AND (@held::text = '' OR (json_array_length(h.holds) > 0) = (@held::text = 'true'))
ORDER BY t.vendor_id, t.due_date, t.document_id, t.body_sequence
LIMIT @page_size;

-- Rows of an earlier release, which knew postings only.

-- name: OpenItemsEarlier :many
SELECT
    d.vendor_id,
    d.document_id,
    d.sequence AS body_sequence,
    d.invoice_number,
    d.kind,
    coalesce(d.invoice_date, d.due_date)::date AS invoice_date,
    coalesce(d.due_date, d.invoice_date)::date AS due_date,
    d.currency,
    t.total::text AS total,
    t.open::text AS open,
    t.open_functional::text AS open_functional,
    t.event_id::text AS event_id,
    h.holds::text AS holds,
    d.dimensions::text AS dimensions,
    ''::text AS discount
FROM (
    SELECT
        e.document_id,
        sum(e.amount) AS total,
        sum(e.amount) AS open,
        sum(e.functional_amount) AS open_functional,
        min(e.event_id::text) AS event_id
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
    d.vendor_id >= @first_vendor_id::text AND d.vendor_id <= @last_vendor_id::text
    AND (@currency::text = '' OR d.currency = @currency)
    AND (@due_before::text = '' OR d.due_date < nullif(@due_before::text, '')::date)
    AND (d.vendor_id, d.due_date, d.document_id, d.sequence)
    > (@after_vendor_id::text, @after_due_date::date, @after_document_id::text, @after_body_sequence::bigint)
    AND (@kind::text = '' OR d.kind = @kind)
    AND (@held::text = '' OR (json_array_length(h.holds) > 0) = (@held::text = 'true'))
ORDER BY d.vendor_id, d.due_date, d.document_id
LIMIT @page_size;
