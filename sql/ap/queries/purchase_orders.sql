-- name: PurchaseOrderInsert :exec
INSERT INTO ap.purchase_orders (partition_id, version, sequence, effective_date, revision, event_id, po_reference, vendor_id, currency, status)
VALUES (@partition_id, @version, @sequence, @effective_date, @revision, @event_id, @po_reference, @vendor_id, @currency, @status)
ON CONFLICT DO NOTHING;

-- name: PurchaseOrderLineInsert :exec
INSERT INTO ap.purchase_order_lines (
    partition_id, version, sequence, line_number, po_reference, line, item_id, quantity, unit_price, price_base_quantity, account
)
SELECT
    @partition_id::integer, @version::integer, @sequence::bigint, l.line_number, @po_reference::text, l.line, l.item_id, l.quantity::numeric,
    l.unit_price::numeric, l.price_base_quantity::numeric, l.account
FROM (
    -- set-returning functions in one list advance together
    SELECT
        unnest(@line_numbers::integer[]) AS line_number,
        unnest(@lines::text[]) AS line,
        unnest(@item_ids::text[]) AS item_id,
        unnest(@quantities::text[]) AS quantity,
        unnest(@unit_prices::text[]) AS unit_price,
        unnest(@price_base_quantities::text[]) AS price_base_quantity,
        unnest(@accounts::text[]) AS account
) AS l
ON CONFLICT DO NOTHING;

-- name: PurchaseOrderQuantityInsert :exec
INSERT INTO ap.purchase_order_quantities (
    partition_id, version, sequence, effective_date, position, po_reference, line, vendor_id, document_id, received, billed
)
SELECT
    @partition_id::integer, @version::integer, @sequence::bigint, @effective_date::date, q.position, @po_reference::text, q.line,
    @vendor_id::text, @document_id::text, q.received::numeric, q.billed::numeric
FROM (
    SELECT
        unnest(@positions::integer[]) AS position,
        unnest(@lines::text[]) AS line,
        unnest(@received::text[]) AS received,
        unnest(@billed::text[]) AS billed
) AS q
ON CONFLICT DO NOTHING;

-- A line that a revision removed is still shown if quantities of it are known. Documents of other
-- vendors bill nothing. billed_here is what one document bills.

-- name: PurchaseOrderLines :many
SELECT
    o.po_reference,
    l.line::text AS line,
    o.revision,
    o.vendor_id,
    o.currency,
    o.status,
    o.event_id::text AS event_id,
    l.item_id::text AS item_id,
    l.ordered::text AS ordered,
    l.unit_price::text AS unit_price,
    l.price_base_quantity::text AS price_base_quantity,
    l.received::text AS received,
    l.billed::text AS billed,
    l.billed_here::text AS billed_here
FROM (
    SELECT DISTINCT ON (r.po_reference)
        r.sequence,
        r.po_reference,
        r.revision,
        r.vendor_id,
        r.currency,
        r.status,
        r.event_id
    FROM ap.purchase_orders AS r
    WHERE
        r.partition_id = @partition_id AND r.version = @version AND r.sequence <= @known AND r.effective_date <= @as_of
        AND r.po_reference >= @after_reference AND (@po_reference::text = '' OR r.po_reference = @po_reference)
        AND (@vendor_id::text = '' OR r.vendor_id = @vendor_id)
    ORDER BY r.po_reference, r.sequence DESC
) AS o
CROSS JOIN LATERAL (
    SELECT
        coalesce(d.line, q.line) AS line,
        coalesce(d.item_id, '') AS item_id,
        trim_scale(coalesce(d.quantity, 0)) AS ordered,
        trim_scale(coalesce(d.unit_price, 0)) AS unit_price,
        trim_scale(coalesce(d.price_base_quantity, 1)) AS price_base_quantity,
        trim_scale(coalesce(q.received, 0)) AS received,
        trim_scale(coalesce(q.billed, 0)) AS billed,
        trim_scale(coalesce(q.billed_here, 0)) AS billed_here
    FROM (
        SELECT
            e.line,
            e.item_id,
            e.quantity,
            e.unit_price,
            e.price_base_quantity
        FROM ap.purchase_order_lines AS e
        WHERE e.partition_id = @partition_id AND e.version = @version AND e.po_reference = o.po_reference AND e.sequence = o.sequence
    ) AS d
    FULL JOIN (
        SELECT
            c.line,
            sum(c.received) AS received,
            sum(c.billed) AS billed,
            sum(c.billed) FILTER (WHERE c.document_id = @document_id::text) AS billed_here
        FROM ap.purchase_order_quantities AS c
        WHERE
            c.partition_id = @partition_id AND c.version = @version AND c.po_reference = o.po_reference
            AND c.sequence <= @known AND c.effective_date <= @as_of AND (c.document_id = '' OR c.vendor_id = o.vendor_id)
        GROUP BY c.line
    ) AS q ON q.line = d.line
) AS l
WHERE
    (@status::text = '' OR o.status = @status)
    AND (o.po_reference, l.line) > (@after_reference::text, @after_line::text)
ORDER BY o.po_reference, l.line
LIMIT @page_size;
