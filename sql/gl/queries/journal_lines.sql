-- Numbers are sent as text, so that no type of the client changes the event's digits; an
-- empty rate is none.

-- name: JournalLineInsert :exec
INSERT INTO gl.journal_lines (
    partition_id, version, sequence, line_number, effective_date, rate_date, side, account, amount, currency,
    functional_amount, functional_currency, rate, description, tax_code, dimensions
)
SELECT
    @partition_id::integer, @version::integer, l.sequence, l.line_number, l.effective_date, nullif(l.rate_date, '')::date, l.side, l.account, l.amount::numeric, l.currency,
    l.functional_amount::numeric, l.functional_currency, nullif(l.rate, '')::numeric, l.description, l.tax_code, l.dimensions::jsonb
FROM (
    -- set-returning functions in one list advance together
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@line_numbers::integer[]) AS line_number,
        unnest(@effective_dates::date[]) AS effective_date,
        unnest(@rate_dates::text[]) AS rate_date,
        unnest(@sides::text[]) AS side,
        unnest(@accounts::text[]) AS account,
        unnest(@amounts::text[]) AS amount,
        unnest(@currencies::text[]) AS currency,
        unnest(@functional_amounts::text[]) AS functional_amount,
        unnest(@functional_currencies::text[]) AS functional_currency,
        unnest(@rates::text[]) AS rate,
        unnest(@descriptions::text[]) AS description,
        unnest(@tax_codes::text[]) AS tax_code,
        unnest(@dimensions::text[]) AS dimensions
) AS l
ON CONFLICT DO NOTHING;

-- name: TrialBalance :many
SELECT
    t.account,
    coalesce((
        SELECT a.name
        FROM gl.accounts AS a
        WHERE a.partition_id = @partition_id AND a.version = @version AND a.code = t.account AND a.sequence <= @known
        ORDER BY a.sequence DESC
        LIMIT 1
    ), '')::text AS name,
    t.debit::text AS debit,
    t.credit::text AS credit
FROM (
    SELECT
        l.account,
        coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'debit'), 0) AS debit,
        coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'credit'), 0) AS credit
    FROM gl.journal_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @version
        AND l.effective_date <= @as_of
        AND l.sequence <= @known
        AND l.functional_currency = @functional_currency
    GROUP BY l.account
) AS t
ORDER BY t.account;

-- name: AccountBalance :one
-- The balance before a page: that of the lines up to and including a position in the
-- account's order. With a currency the balance is in it, else functional.
SELECT coalesce(sum(
    CASE WHEN l.side = 'debit' THEN 1 ELSE -1 END * CASE WHEN @currency::text = '' THEN l.functional_amount ELSE l.amount END
), 0)::text AS balance
FROM gl.journal_lines AS l
WHERE l.partition_id = @partition_id AND l.version = @version
    AND l.account = @account
    AND (l.effective_date, l.sequence, l.line_number) <= (@upto_date::date, @upto_sequence::bigint, @upto_line::integer)
    AND l.sequence <= @known
    AND (@currency::text = '' OR l.currency = @currency::text)
    AND (@currency::text <> '' OR l.functional_currency = @functional_currency::text);

-- name: AccountLinePage :many
SELECT
    l.sequence, l.line_number, l.effective_date, j.recorded_at, j.event_id, j.journal_id, j.journal_number, j.journal_type,
    (CASE WHEN l.description = '' THEN j.description ELSE l.description END)::text AS description,
    l.side, l.amount::text AS amount, l.currency, l.functional_amount::text AS functional_amount, l.functional_currency,
    coalesce(trim_scale(l.rate)::text, '')::text AS rate, l.rate_date, l.dimensions, j.source_module, j.source_event_id,
    coalesce((
        SELECT r.reversed_by
        FROM gl.journal_reversals AS r
        WHERE r.partition_id = l.partition_id AND r.version = l.version AND r.journal_id = j.journal_id AND r.sequence <= @known
    ), '')::text AS reversed_by
FROM gl.journal_lines AS l
JOIN gl.journals AS j ON j.partition_id = l.partition_id AND j.version = l.version AND j.sequence = l.sequence
WHERE l.partition_id = @partition_id AND l.version = @version
    AND l.account = @account
    AND (l.effective_date, l.sequence, l.line_number) > (@after_date::date, @after_sequence::bigint, @after_line::integer)
    AND l.effective_date <= @as_of
    AND l.sequence <= @known
    AND (@currency::text = '' OR l.currency = @currency::text)
    AND (@currency::text <> '' OR l.functional_currency = @functional_currency::text)
ORDER BY l.effective_date, l.sequence, l.line_number
LIMIT @max_rows;
