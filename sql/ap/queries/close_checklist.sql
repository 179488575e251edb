-- Documents of a period's close, by the date of the document, which is its posting date unless
-- another one is named.

-- name: PeriodSpan :one
-- The days of a period of the ledger's calendar.
SELECT p.period_start, p.period_end
FROM gl.period_spans AS p
WHERE p.partition_id = @partition_id AND p.version = @ledger_version AND p.sequence <= @known AND p.period = @period;

-- name: WaitingDocuments :many
-- Documents that are not decided, or have an open hold.
SELECT s.document_id, s.state, h.open_holds::bigint AS open_holds
FROM ap.document_states AS s
CROSS JOIN LATERAL (
    SELECT d.invoice_date
    FROM ap.documents AS d
    WHERE d.partition_id = @partition_id AND d.version = @version AND d.document_id = s.document_id AND d.sequence <= @known
    ORDER BY d.sequence DESC
    LIMIT 1
) AS b
CROSS JOIN LATERAL (
    SELECT count(*) AS open_holds
    FROM ap.document_holds AS o
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
WHERE
    s.partition_id = @partition_id AND s.version = @version AND s.state = ANY(@states::text[])
    AND s.sequence <= @known AND s.until_sequence > @known
    AND (s.state <> 'posted' OR s.document_id IN (
        SELECT o.document_id
        FROM ap.document_holds AS o
        WHERE o.partition_id = @partition_id AND o.version = @version AND NOT o.released
    ))
    AND b.invoice_date BETWEEN @from_date::date AND @to_date::date
    AND (s.state <> 'posted' OR h.open_holds > 0)
ORDER BY s.document_id;
