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

-- name: ClosingSequences :many
-- The closing journals, and the reversals of such, from a day on.
SELECT j.sequence
FROM gl.journals AS j
WHERE j.partition_id = @partition_id AND j.version = @version AND j.sequence <= @known AND j.effective_date >= @from_date
    AND (j.journal_type = 'closing' OR j.reverses_journal_id <> '')
    AND (j.journal_type = 'closing' OR EXISTS (
        SELECT 1
        FROM gl.journals AS o
        WHERE o.partition_id = j.partition_id AND o.version = j.version AND o.journal_id = j.reverses_journal_id AND o.journal_type = 'closing'
    ));

-- name: TrialBalance :many
-- Functional amounts per account: the sums of whole blocks of sequences, the lines of the last
-- block, and less the lines of journals that are left out.
SELECT
    t.account,
    coalesce(sum(t.debit - t.credit) FILTER (WHERE t.effective_date < @from_date::date), 0)::text AS opening,
    coalesce(sum(t.debit) FILTER (WHERE t.effective_date >= @from_date::date), 0)::text AS debit,
    coalesce(sum(t.credit) FILTER (WHERE t.effective_date >= @from_date::date), 0)::text AS credit
FROM (
    SELECT b.account, b.effective_date, b.debit, b.credit
    FROM gl.line_totals AS b
    WHERE b.partition_id = @partition_id AND b.version = @version
        AND b.effective_date <= @as_of AND b.block < @whole_blocks::bigint AND b.functional_currency = @functional_currency
    UNION ALL
    SELECT
        l.account, l.effective_date,
        CASE WHEN l.side = 'debit' THEN l.functional_amount ELSE 0 END,
        CASE WHEN l.side = 'credit' THEN l.functional_amount ELSE 0 END
    FROM gl.journal_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @version
        AND l.effective_date <= @as_of AND l.sequence >= @whole_blocks::bigint << 15 AND l.sequence <= @known
        AND l.functional_currency = @functional_currency
    UNION ALL
    SELECT
        l.account, l.effective_date,
        CASE WHEN l.side = 'debit' THEN -l.functional_amount ELSE 0 END,
        CASE WHEN l.side = 'credit' THEN -l.functional_amount ELSE 0 END
    FROM gl.journal_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @version
        AND l.effective_date <= @as_of AND l.sequence = ANY (@without::bigint[])
        AND l.functional_currency = @functional_currency
) AS t
GROUP BY t.account
ORDER BY t.account;

-- name: FilteredTrialBalance :many
-- Amounts per account of the lines in a currency (in it) or, with '', in all currencies
-- (functional), that have the dimensions and lack others.
SELECT
    l.account,
    coalesce(sum(CASE WHEN l.side = 'debit' THEN 1 ELSE -1 END * CASE WHEN @currency::text = '' THEN l.functional_amount ELSE l.amount END)
        FILTER (WHERE l.effective_date < @from_date), 0)::text AS opening,
    coalesce(sum(CASE WHEN @currency::text = '' THEN l.functional_amount ELSE l.amount END)
        FILTER (WHERE l.side = 'debit' AND l.effective_date >= @from_date), 0)::text AS debit,
    coalesce(sum(CASE WHEN @currency::text = '' THEN l.functional_amount ELSE l.amount END)
        FILTER (WHERE l.side = 'credit' AND l.effective_date >= @from_date), 0)::text AS credit
FROM gl.journal_lines AS l
WHERE l.partition_id = @partition_id AND l.version = @version
    AND l.effective_date <= @as_of
    AND l.sequence <= @known
    AND (@currency::text = '' OR l.currency = @currency::text)
    AND (@currency::text <> '' OR l.functional_currency = @functional_currency::text)
    AND l.dimensions @> @with_dimensions::jsonb
    AND NOT jsonb_exists_any(l.dimensions, @without_dimensions::text[])
    AND (cardinality(@without::bigint[]) = 0 OR l.sequence <> ALL (@without::bigint[]))
GROUP BY l.account
ORDER BY l.account;

-- name: UnclosedYears :many
-- Fiscal years that ended before a day, in whose dates an account of income or expense has a
-- balance.
SELECT y.fiscal_year
FROM (
    SELECT c.fiscal_year, min(c.year_start) AS year_start, min(c.year_end) AS year_end
    FROM gl.calendar_periods AS c
    WHERE c.partition_id = @partition_id AND c.version = @version AND c.sequence <= @known AND c.year_end < @as_of
    GROUP BY c.fiscal_year
) AS y
WHERE EXISTS (
    SELECT 1
    FROM gl.journal_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @version
        AND l.account = ANY (@accounts::text[])
        AND l.effective_date BETWEEN y.year_start AND y.year_end
        AND l.sequence <= @known
        AND l.functional_currency = @functional_currency
    GROUP BY l.account
    HAVING sum(CASE WHEN l.side = 'debit' THEN l.functional_amount ELSE -l.functional_amount END) <> 0
)
ORDER BY y.year_start;

-- name: DimensionBalances :many
-- Functional amounts per account and values of dimensions. An absent dimension is null in the
-- list of values.
SELECT
    b.account, b.dimension_values::text AS dimension_values, b.debit::text AS debit, b.credit::text AS credit,
    (sum(b.debit - b.credit) OVER (PARTITION BY b.account))::text AS account_balance
FROM (
    SELECT
        l.account, v.dimension_values,
        coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'debit'), 0) AS debit,
        coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'credit'), 0) AS credit
    FROM gl.journal_lines AS l
    CROSS JOIN LATERAL (
        SELECT coalesce(jsonb_agg(l.dimensions -> d.name ORDER BY d.place), '[]') AS dimension_values
        FROM unnest(@dimensions::text[]) WITH ORDINALITY AS d (name, place)
    ) AS v
    WHERE l.partition_id = @partition_id AND l.version = @version
        AND (@account::text = '' OR l.account = @account::text)
        AND l.effective_date >= @from_date AND l.effective_date <= @as_of
        AND l.sequence <= @known
        AND l.functional_currency = @functional_currency
    GROUP BY l.account, v.dimension_values
) AS b
ORDER BY b.account, b.dimension_values::text COLLATE "C";

-- name: JournalLinePage :many
-- Lines of journals by sequence and number.
SELECT
    l.sequence, l.line_number, l.effective_date, j.document_date, j.recorded_at, j.event_id, j.journal_id, j.journal_number, j.journal_type, j.description AS journal_description,
    j.fiscal_year, j.period, j.intent_id, j.correlation_id, j.source_module, j.source_event_id,
    l.account, l.description, l.side, l.amount::text AS amount, l.currency, l.functional_amount::text AS functional_amount, l.functional_currency,
    coalesce(trim_scale(l.rate)::text, '')::text AS rate, l.rate_date, l.tax_code, l.dimensions
FROM gl.journal_lines AS l
JOIN gl.journals AS j ON j.partition_id = l.partition_id AND j.version = l.version AND j.sequence = l.sequence
WHERE l.partition_id = @partition_id AND l.version = @version
    AND (l.sequence, l.line_number) > (@after_sequence::bigint, @after_line::integer)
    AND l.sequence <= @upto
    AND l.effective_date >= @from_date AND l.effective_date <= @as_of
    AND (@account::text = '' OR l.account = @account::text)
    AND (@tax_code::text = '' OR l.tax_code = @tax_code::text)
ORDER BY l.sequence, l.line_number
LIMIT @max_rows;

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
    AND (@currency::text <> '' OR l.functional_currency = @functional_currency::text)
    AND l.dimensions @> @with_dimensions::jsonb
    AND NOT jsonb_exists_any(l.dimensions, @without_dimensions::text[]);

-- name: AccountLinePage :many
-- The page is cut before anything is looked up for its lines: a planner without statistics would look all up first.
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
FROM (
    SELECT p.*
    FROM gl.journal_lines AS p
    WHERE p.partition_id = @partition_id AND p.version = @version
        AND p.account = @account
        AND (p.effective_date, p.sequence, p.line_number) > (@after_date::date, @after_sequence::bigint, @after_line::integer)
        AND p.effective_date <= @as_of
        AND p.sequence <= @known
        AND (@currency::text = '' OR p.currency = @currency::text)
        AND (@currency::text <> '' OR p.functional_currency = @functional_currency::text)
        AND p.dimensions @> @with_dimensions::jsonb
        AND NOT jsonb_exists_any(p.dimensions, @without_dimensions::text[])
    ORDER BY p.effective_date, p.sequence, p.line_number
    LIMIT @max_rows
) AS l
CROSS JOIN LATERAL (
    SELECT x.recorded_at, x.event_id, x.journal_id, x.journal_number, x.journal_type, x.description, x.source_module, x.source_event_id
    FROM gl.journals AS x
    WHERE x.partition_id = @partition_id AND x.version = @version AND x.sequence = l.sequence
    LIMIT 1
) AS j
ORDER BY l.effective_date, l.sequence, l.line_number;
