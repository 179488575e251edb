-- name: SubledgerControl :many
-- The open amounts of documents beside the balances of the control accounts, per currency and,
-- if asked for, vendor. Both are credit balances.
SELECT
    b.vendor::text AS vendor, b.currency::text AS currency,
    coalesce(string_agg(DISTINCT nullif(b.account, ''), ',' ORDER BY nullif(b.account, '')), '')::text AS accounts,
    sum(b.subledger)::text AS subledger, sum(b.subledger_functional)::text AS subledger_functional,
    sum(b.ledger)::text AS ledger, sum(b.ledger_functional)::text AS ledger_functional
FROM (
    SELECT
        CASE WHEN @by_vendor::boolean THEN e.vendor_id ELSE '' END AS vendor, e.currency, ''::text AS account,
        e.amount AS subledger, e.functional_amount AS subledger_functional, 0::numeric AS ledger, 0::numeric AS ledger_functional
    FROM ap.document_entries AS e
    WHERE e.partition_id = @partition_id AND e.version = @version AND e.effective_date <= @as_of AND e.sequence <= @known
        AND e.functional_currency = @functional_currency
    UNION ALL
    SELECT
        CASE WHEN @by_vendor::boolean THEN l.vendor ELSE '' END AS vendor, l.currency, l.account,
        0::numeric, 0::numeric, l.credit_amount, l.credit_functional
    FROM gl.control_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @ledger_version AND l.effective_date <= @as_of AND l.sequence <= @known
        AND l.functional_currency = @functional_currency AND l.control = 'ap'
) AS b
WHERE (@vendor_id::text = '' OR b.vendor = @vendor_id::text)
GROUP BY b.vendor, b.currency
ORDER BY b.vendor, b.currency;
