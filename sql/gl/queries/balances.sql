-- name: Balances :many
-- Balances per account, currency and dimensions of the lines of a span of days, debit less
-- credit. Accounts are of the type that they had at the sequence; an account outside the
-- chart belongs to no statement. A page begins after a key.
WITH chart AS (
    SELECT DISTINCT ON (a.code) a.code, a.name, a.type
    FROM gl.accounts AS a
    WHERE a.partition_id = @partition_id AND a.version = @version AND a.sequence <= @known
    ORDER BY a.code, a.sequence DESC
),

balances AS (
    SELECT
        l.account,
        (l.currency COLLATE "C")::text AS currency,
        (l.dimensions::text COLLATE "C")::text AS dimensions,
        sum(CASE WHEN l.side = 'debit' THEN l.amount ELSE -l.amount END) AS amount,
        sum(CASE WHEN l.side = 'debit' THEN l.functional_amount ELSE -l.functional_amount END) AS functional_amount
    FROM gl.journal_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @version
        AND l.effective_date BETWEEN @from_date::date AND @as_of::date
        AND l.sequence <= @known
        AND l.functional_currency = @functional_currency
        AND (@account::text = '' OR l.account = @account::text)
        AND (@statement::text = '' OR l.account IN (
            SELECT code FROM chart
            WHERE (type IN ('income', 'expense')) = (@statement::text = 'income')
        ))
    GROUP BY l.account, l.currency, l.dimensions
)

SELECT
    balances.account,
    coalesce(chart.name, '')::text AS name,
    coalesce(chart.type, '')::text AS type,
    balances.currency,
    balances.dimensions,
    balances.amount::text AS amount,
    balances.functional_amount::text AS functional_amount
FROM balances
LEFT JOIN chart ON chart.code = balances.account
WHERE (balances.amount <> 0 OR balances.functional_amount <> 0)
    AND (balances.account, balances.currency, balances.dimensions) > (@after_account::text, @after_currency::text, @after_dimensions::text)
ORDER BY balances.account, balances.currency, balances.dimensions
LIMIT @max_rows;
