-- DocumentWorklist reads documents by state as known at a sequence, whatever their dates: what
-- is dated later waits too. The oldest document is the first one.

-- name: DocumentWorklist :many
SELECT
    b.vendor_id,
    s.document_id,
    b.invoice_number,
    b.kind,
    n.state::text AS state,
    b.invoice_date,
    b.due_date,
    b.currency,
    b.total::text AS total,
    a.open::text AS open,
    a.open_functional::text AS open_functional,
    h.holds::text AS holds,
    f.recorded_at AS entered_at,
    s.recorded_at AS since,
    n.next_step::text AS next_step,
    b.event_id::text AS event_id
FROM ap.document_states AS s
CROSS JOIN LATERAL (
    SELECT d.vendor_id, d.invoice_number, d.kind, d.invoice_date, d.due_date, d.currency, d.total, p.event_id
    FROM ap.documents AS d
    INNER JOIN ap.document_steps AS p
        ON p.partition_id = d.partition_id AND p.version = d.version AND p.document_id = d.document_id AND p.sequence = d.sequence
    WHERE d.partition_id = @partition_id AND d.version = @version AND d.document_id = s.document_id AND d.sequence <= @known
    ORDER BY d.sequence DESC
    LIMIT 1
) AS b
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(e.amount) FILTER (WHERE e.action IN ('posted', 'voided')), 0) AS posted,
        coalesce(sum(e.amount), 0) AS open,
        coalesce(sum(e.functional_amount), 0) AS open_functional
    FROM ap.document_entries AS e
    WHERE e.partition_id = @partition_id AND e.version = @version AND e.document_id = s.document_id AND e.sequence <= @known
) AS a
CROSS JOIN LATERAL (
    SELECT
        coalesce(json_agg(json_build_object(
            'hold_id', o.hold_id, 'kind', o.kind, 'blocks', o.blocks, 'placed_at', p.recorded_at
        ) ORDER BY o.sequence), '[]'::json) AS holds,
        coalesce(bool_or(o.blocks = 'approval'), false) AS blocks_approval,
        count(*) AS open_holds,
        coalesce(bool_or(o.kind = @hold::text), false) AS has_kind
    FROM ap.document_holds AS o
    INNER JOIN ap.document_steps AS p
        ON p.partition_id = o.partition_id AND p.version = o.version AND p.document_id = o.document_id AND p.sequence = o.sequence
    WHERE
        o.partition_id = @partition_id AND o.version = @version AND o.document_id = s.document_id AND NOT o.released AND o.sequence <= @known
        AND NOT EXISTS (
            SELECT 1
            FROM ap.document_holds AS r
            WHERE
                r.partition_id = @partition_id AND r.version = @version AND r.document_id = o.document_id AND r.hold_id = o.hold_id
                AND r.released AND r.sequence <= @known
        )
        AND NOT EXISTS ( -- a reinstatement ends the holds before it
            SELECT 1
            FROM ap.documents AS d
            WHERE
                d.partition_id = @partition_id AND d.version = @version AND d.document_id = o.document_id AND d.action = 'reinstated'
                AND d.sequence > o.sequence AND d.sequence <= @known
        )
) AS h
CROSS JOIN LATERAL (
    SELECT p.recorded_at
    FROM ap.document_steps AS p
    WHERE p.partition_id = @partition_id AND p.version = @version AND p.document_id = s.document_id
    ORDER BY p.sequence
    LIMIT 1
) AS f
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN s.state = 'posted' AND a.open = 0 THEN 'paid'
            WHEN s.state = 'posted' AND a.open <> a.posted THEN 'partially_paid'
            ELSE s.state
        END AS state,
        CASE
            WHEN s.state = 'draft' THEN 'submit'
            WHEN s.state IN ('submitted', 'validated') AND h.blocks_approval THEN 'correct_or_release'
            WHEN s.state IN ('submitted', 'validated') THEN 'approve'
            WHEN s.state IN ('rejected', 'voided') THEN 'reinstate'
            WHEN s.state <> 'posted' OR a.open = 0 THEN ''
            WHEN h.open_holds > 0 THEN 'release'
            WHEN b.kind = 'credit_memo' THEN 'apply'
            ELSE 'pay'
        END AS next_step
) AS n
WHERE
    s.partition_id = @partition_id AND s.version = @version AND s.state = ANY(@stored_states::text[])
    AND s.sequence <= @known AND s.until_sequence > @known
    AND s.document_id > @after_document_id::text
    AND n.state = ANY(@states::text[])
    AND (@vendor_id::text = '' OR b.vendor_id = @vendor_id)
    AND (@kind::text = '' OR b.kind = @kind)
    AND (@hold::text = '' OR h.has_kind)
    AND (@next_steps::text[] = '{}' OR n.next_step = ANY(@next_steps::text[]))
    AND f.recorded_at < @entered_before::timestamptz
ORDER BY s.document_id
LIMIT @page_size;

-- name: DocumentState :one
SELECT s.state
FROM ap.document_states AS s
WHERE
    s.partition_id = @partition_id AND s.version = @version AND s.document_id = @document_id
    AND s.sequence <= @known AND s.until_sequence > @known;

-- name: DocumentBody :one
SELECT d.vendor_id, d.invoice_number, d.kind, d.currency, d.total::text AS total, d.dimensions::text AS dimensions, coalesce(d.body, '{}'::json)::text AS body
FROM ap.documents AS d
WHERE d.partition_id = @partition_id AND d.version = @version AND d.document_id = @document_id AND d.sequence <= @known
ORDER BY d.sequence DESC
LIMIT 1;

-- name: DocumentSteps :many
SELECT s.sequence, s.recorded_at, s.effective_date, s.event_id::text AS event_id, s.action, s.actor_type, s.actor_id, s.on_behalf_of, s.data::text AS data
FROM ap.document_steps AS s
WHERE s.partition_id = @partition_id AND s.version = @version AND s.document_id = @document_id AND s.sequence <= @known
ORDER BY s.sequence;

-- name: DocumentEntries :many
SELECT e.sequence, e.effective_date, e.event_id::text AS event_id, e.action, e.amount::text AS amount, e.functional_amount::text AS functional_amount,
    e.functional_currency, e.counterpart
FROM ap.document_entries AS e
WHERE e.partition_id = @partition_id AND e.version = @version AND e.document_id = @document_id AND e.sequence <= @known
ORDER BY e.sequence;
