-- name: PaymentInsert :exec
INSERT INTO ap.payments (
    sequence, partition_id, version, position, documents, effective_date, pay_date, run_id, payment_id, vendor_id, bank_account, currency, amount, discount, event_id
)
SELECT
    @sequence::bigint, @partition_id::integer, @version::integer, p.position, p.documents, @effective_date::date, @pay_date::date, @run_id::text, p.payment_id,
    p.vendor_id, @bank_account::text, p.currency, p.amount::numeric, p.discount::numeric, @event_id::uuid
FROM (
    SELECT
        unnest(@positions::integer[]) AS position,
        unnest(@documents::integer[]) AS documents,
        unnest(@payment_ids::text[]) AS payment_id,
        unnest(@vendor_ids::text[]) AS vendor_id,
        unnest(@currencies::text[]) AS currency,
        unnest(@amounts::text[]) AS amount,
        unnest(@discounts::text[]) AS discount
) AS p
ON CONFLICT DO NOTHING;

-- name: PaymentRunStepInsert :exec
INSERT INTO ap.payment_run_steps (
    recorded_at, sequence, partition_id, version, effective_date, pay_date, step, run_id, payment_id, bank_account, actor, message_id, file_sha256, event_id
)
VALUES (
    @recorded_at, @sequence, @partition_id, @version, @effective_date, @pay_date, @step, @run_id, @payment_id, @bank_account, @actor, @message_id, @file_sha256, @event_id
)
ON CONFLICT DO NOTHING;

-- name: PaymentStepInsert :exec
INSERT INTO ap.payment_steps (
    recorded_at, sequence, partition_id, version, effective_date, executed_on, step, payment_id, actor, bank_reference, bank_status, reason_code, event_id
)
VALUES (
    @recorded_at, @sequence, @partition_id, @version, @effective_date, @executed_on, @step, @payment_id, @actor, @bank_reference, @bank_status, @reason_code, @event_id
)
ON CONFLICT DO NOTHING;

-- PaymentList reads payments as of a date and as known at a sequence. The last step of the
-- payment itself decides its state, else the last one of its run.

-- name: PaymentList :many
SELECT
    p.run_id,
    p.payment_id,
    p.position,
    p.vendor_id,
    p.bank_account,
    p.pay_date,
    p.currency,
    p.amount::text AS amount,
    p.discount::text AS discount,
    p.documents,
    t.state::text AS state,
    t.executed_on::text AS executed_on,
    t.bank_reference::text AS bank_reference,
    t.bank_status::text AS bank_status,
    t.reason_code::text AS reason_code,
    t.file_sha256::text AS file_sha256,
    t.steps::text AS steps,
    p.event_id::text AS event_id
FROM ap.payments AS p
CROSS JOIN LATERAL (
    SELECT
        coalesce(
            (array_agg(s.step ORDER BY s.sequence DESC) FILTER (WHERE s.of_payment AND s.step <> 'status_reported'))[1],
            (array_agg(s.step ORDER BY s.sequence DESC) FILTER (WHERE NOT s.of_payment))[1],
            ''
        ) AS state,
        coalesce(to_char(max(s.executed_on), 'YYYY-MM-DD'), '') AS executed_on,
        coalesce(max(s.bank_reference), '') AS bank_reference,
        coalesce((array_agg(s.bank_status ORDER BY s.sequence DESC) FILTER (WHERE s.bank_status <> ''))[1], '') AS bank_status,
        coalesce((array_agg(s.reason_code ORDER BY s.sequence DESC) FILTER (WHERE s.reason_code <> ''))[1], '') AS reason_code,
        coalesce((array_agg(s.file_sha256 ORDER BY s.sequence DESC) FILTER (WHERE s.file_sha256 <> ''))[1], '') AS file_sha256,
        coalesce(json_agg(json_build_object(
            'step', s.step, 'at', s.recorded_at, 'by', s.actor, 'date', s.effective_date, 'event_id', s.event_id
        ) ORDER BY s.sequence), '[]'::json) AS steps
    FROM (
        SELECT
            r.sequence, r.step, r.recorded_at, r.actor, r.effective_date, r.event_id, r.payment_id <> '' AS of_payment,
            NULL::date AS executed_on, '' AS bank_reference, '' AS bank_status, '' AS reason_code, r.file_sha256
        FROM ap.payment_run_steps AS r
        WHERE
            r.partition_id = @partition_id AND r.version = @version AND r.run_id = p.run_id AND r.payment_id IN ('', p.payment_id)
            AND r.sequence <= @known AND r.effective_date <= @as_of
            AND NOT EXISTS ( -- what happens to the run later does not concern an excluded payment
                SELECT 1
                FROM ap.payment_run_steps AS x
                WHERE
                    x.partition_id = @partition_id AND x.version = @version AND x.run_id = p.run_id AND x.payment_id = p.payment_id
                    AND x.sequence < r.sequence AND x.sequence <= @known AND x.effective_date <= @as_of
            )
        UNION ALL
        SELECT
            o.sequence, o.step, o.recorded_at, o.actor, o.effective_date, o.event_id, true, o.executed_on, o.bank_reference, o.bank_status, o.reason_code, ''
        FROM ap.payment_steps AS o
        WHERE
            o.partition_id = @partition_id AND o.version = @version AND o.payment_id = p.payment_id
            AND o.sequence <= @known AND o.effective_date <= @as_of
    ) AS s
) AS t
WHERE
    p.partition_id = @partition_id AND p.version = @version AND p.sequence <= @known AND p.effective_date <= @as_of
    AND p.pay_date BETWEEN @from_date AND @to_date
    AND (@run_id::text = '' OR p.run_id = @run_id)
    AND (@vendor_id::text = '' OR p.vendor_id = @vendor_id)
    AND (@state::text = '' OR t.state = @state)
    AND (p.run_id, p.position) > (@after_run_id::text, @after_position::integer)
ORDER BY p.run_id, p.position
LIMIT @page_size;

-- PaymentRunList reads runs with the number and amount of their payments by state. A payment is in
-- transit if its run was exported and the bank has not answered.

-- name: PaymentRunList :many
SELECT
    h.run_id,
    h.bank_account,
    h.pay_date,
    t.state::text AS state,
    t.message_id::text AS message_id,
    t.file_sha256::text AS file_sha256,
    t.steps::text AS steps,
    c.totals::text AS totals,
    h.event_id::text AS event_id
FROM ap.payment_run_steps AS h
CROSS JOIN LATERAL (
    SELECT
        coalesce((array_agg(r.step ORDER BY r.sequence DESC) FILTER (WHERE r.payment_id = ''))[1], '') AS state,
        coalesce((array_agg(r.message_id ORDER BY r.sequence DESC) FILTER (WHERE r.message_id <> ''))[1], '') AS message_id,
        coalesce((array_agg(r.file_sha256 ORDER BY r.sequence DESC) FILTER (WHERE r.file_sha256 <> ''))[1], '') AS file_sha256,
        coalesce(json_agg(json_build_object(
            'step', r.step, 'at', r.recorded_at, 'by', r.actor, 'date', r.effective_date, 'event_id', r.event_id
        ) ORDER BY r.sequence) FILTER (WHERE r.payment_id = ''), '[]'::json) AS steps
    FROM ap.payment_run_steps AS r
    WHERE
        r.partition_id = @partition_id AND r.version = @version AND r.run_id = h.run_id AND r.sequence <= @known AND r.effective_date <= @as_of
) AS t
CROSS JOIN LATERAL (
    SELECT coalesce(json_agg(json_build_object(
        'currency', g.currency, 'payments', g.payments, 'amount', g.amount::text, 'executed', g.executed::text, 'failed', g.failed::text,
        'voided', g.voided::text, 'excluded', g.excluded::text, 'unanswered', g.unanswered::text
    ) ORDER BY g.currency), '[]'::json) AS totals
    FROM (
        SELECT
            p.currency,
            count(*) FILTER (WHERE NOT l.is_excluded) AS payments,
            coalesce(sum(p.amount) FILTER (WHERE NOT l.is_excluded), 0) AS amount,
            coalesce(sum(p.amount) FILTER (WHERE l.step = 'executed'), 0) AS executed,
            coalesce(sum(p.amount) FILTER (WHERE l.step = 'failed'), 0) AS failed,
            coalesce(sum(p.amount) FILTER (WHERE l.step = 'voided'), 0) AS voided,
            coalesce(sum(p.amount) FILTER (WHERE l.is_excluded), 0) AS excluded,
            coalesce(sum(p.amount) FILTER (WHERE NOT l.is_excluded AND l.step = ''), 0) AS unanswered
        FROM ap.payments AS p
        CROSS JOIN LATERAL (
            SELECT
                EXISTS (
                    SELECT 1
                    FROM ap.payment_run_steps AS x
                    WHERE
                        x.partition_id = @partition_id AND x.version = @version AND x.run_id = p.run_id AND x.payment_id = p.payment_id
                        AND x.sequence <= @known AND x.effective_date <= @as_of
                ) AS is_excluded,
                coalesce((
                    SELECT o.step
                    FROM ap.payment_steps AS o
                    WHERE
                        o.partition_id = @partition_id AND o.version = @version AND o.payment_id = p.payment_id AND o.step <> 'status_reported'
                        AND o.sequence <= @known AND o.effective_date <= @as_of
                    ORDER BY o.sequence DESC
                    LIMIT 1
                ), '') AS step
        ) AS l
        WHERE
            p.partition_id = @partition_id AND p.version = @version AND p.run_id = h.run_id AND p.sequence <= @known AND p.effective_date <= @as_of
        GROUP BY p.currency
    ) AS g
) AS c
WHERE
    h.partition_id = @partition_id AND h.version = @version AND h.step = 'proposed' AND h.sequence <= @known AND h.effective_date <= @as_of
    AND h.pay_date BETWEEN @from_date AND @to_date
    AND (@state::text = '' OR t.state = @state)
    AND h.run_id > @after_run_id::text
ORDER BY h.run_id
LIMIT @page_size;

-- PaymentHistory reads what happened to the payments of a run, or to one payment and its run: the
-- steps of both, what payments did to documents, and the postings of these documents. The version of
-- the open items is that of another projection.

-- name: PaymentHistory :many
SELECT
    h.sequence,
    h.position,
    h.step,
    h.recorded_at,
    h.actor,
    h.effective_date,
    h.payment_id,
    h.document_id,
    h.currency,
    h.amount,
    h.message_id,
    h.file_sha256,
    h.event_id::text AS event_id
FROM (
    SELECT
        r.sequence, 0 AS position, r.step, r.recorded_at, r.actor, r.effective_date, r.payment_id, ''::text AS document_id, ''::text AS currency, ''::text AS amount,
        r.message_id, r.file_sha256, r.event_id
    FROM ap.payment_run_steps AS r
    WHERE
        r.partition_id = @partition_id AND r.version = @version AND r.run_id = @run_id AND (@payment_id::text = '' OR r.payment_id IN ('', @payment_id))
        AND r.sequence <= @known AND r.effective_date <= @as_of
    UNION ALL
    SELECT
        o.sequence, 0, o.step, o.recorded_at, o.actor, o.effective_date, o.payment_id, '', p.currency, p.amount::text, '', '', o.event_id
    FROM ap.payments AS p
    INNER JOIN ap.payment_steps AS o ON p.partition_id = o.partition_id AND p.version = o.version AND p.payment_id = o.payment_id
    WHERE
        p.partition_id = @partition_id AND p.version = @version AND p.run_id = @run_id AND (@payment_id::text = '' OR p.payment_id = @payment_id)
        AND o.sequence <= @known AND o.effective_date <= @as_of
    UNION ALL
    SELECT
        e.sequence, d.position, d.step, d.recorded_at, d.actor, d.effective_date, p.payment_id, e.document_id, e.currency, d.amount::text, '', '', d.event_id
    FROM ap.payments AS p
    INNER JOIN ap.document_entries AS e
        ON
            p.partition_id = e.partition_id AND e.version = @items_version::integer AND p.vendor_id = e.vendor_id AND p.payment_id = e.counterpart
    CROSS JOIN LATERAL (
        SELECT 1 AS position, s.action AS step, s.recorded_at, s.actor_id AS actor, e.effective_date, e.amount, e.event_id
        FROM ap.document_steps AS s
        WHERE s.partition_id = @partition_id AND s.version = @items_version::integer AND s.document_id = e.document_id AND s.sequence = e.sequence
        UNION ALL
        (
            SELECT 2, h.action, s.recorded_at, s.actor_id, h.effective_date, h.amount, h.event_id
            FROM ap.document_entries AS h
            INNER JOIN ap.document_steps AS s
                ON h.partition_id = s.partition_id AND h.version = s.version AND h.document_id = s.document_id AND h.sequence = s.sequence
            WHERE
                h.partition_id = @partition_id AND h.version = @items_version::integer AND h.document_id = e.document_id AND h.sequence < e.sequence
                AND h.action = 'posted'
            ORDER BY h.sequence DESC
            LIMIT 1
        )
    ) AS d
    WHERE
        p.partition_id = @partition_id AND p.version = @version AND p.run_id = @run_id AND (@payment_id::text = '' OR p.payment_id = @payment_id)
        AND e.sequence <= @known AND e.effective_date <= @as_of
) AS h
WHERE (h.sequence, h.position) > (@after_sequence::bigint, @after_position::integer)
ORDER BY h.sequence, h.position
LIMIT @page_size;
