-- name: TaxSettingsInsert :exec
INSERT INTO ap.tax_settings (partition_id, version, sequence, tax_group, rate, input_account, output_account, functional_currency)
SELECT
    @partition_id::integer, @version::integer, @sequence::bigint, g.tax_group, g.rate, g.input_account, g.output_account, @functional_currency::text
FROM (
    SELECT
        unnest(@tax_groups::text[]) AS tax_group,
        unnest(@rates::text[]) AS rate,
        unnest(@input_accounts::text[]) AS input_account,
        unnest(@output_accounts::text[]) AS output_account
) AS g
ON CONFLICT DO NOTHING;

-- A line is judged by the settings before its journal.

-- name: TaxLineInsert :exec
INSERT INTO ap.tax_lines (
    partition_id, version, sequence, line_number, effective_date, period, tax_group, part, currency, amount, functional_amount, functional_currency,
    event_id, journal_number, document_id, payment_id
)
SELECT
    @partition_id::integer, @version::integer, l.sequence, l.line_number, l.effective_date, l.period, l.tax_group,
    CASE
        WHEN l.part <> '' THEN l.part
        WHEN l.account = s.input_account THEN 'recoverable'
        WHEN l.account = s.output_account THEN 'output'
        ELSE 'base'
    END,
    l.currency, l.amount::numeric, l.functional_amount::numeric, l.functional_currency, l.event_id, l.journal_number, l.document_id, l.payment_id
FROM (
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@line_numbers::integer[]) AS line_number,
        unnest(@effective_dates::date[]) AS effective_date,
        unnest(@periods::text[]) AS period,
        unnest(@tax_groups::text[]) AS tax_group,
        unnest(@parts::text[]) AS part,
        unnest(@accounts::text[]) AS account,
        unnest(@currencies::text[]) AS currency,
        unnest(@amounts::text[]) AS amount,
        unnest(@functional_amounts::text[]) AS functional_amount,
        unnest(@functional_currencies::text[]) AS functional_currency,
        unnest(@event_ids::uuid[]) AS event_id,
        unnest(@journal_numbers::text[]) AS journal_number,
        unnest(@document_ids::text[]) AS document_id,
        unnest(@payment_ids::text[]) AS payment_id
) AS l
LEFT JOIN LATERAL (
    SELECT
        n.input_account,
        n.output_account
    FROM ap.tax_settings AS n
    WHERE n.partition_id = @partition_id AND n.version = @version AND n.sequence < l.sequence AND n.tax_group = l.tax_group
    ORDER BY n.sequence DESC
    LIMIT 1
) AS s ON true
ON CONFLICT DO NOTHING;

-- name: TaxCurrency :one
SELECT s.functional_currency
FROM ap.tax_settings AS s
WHERE s.partition_id = @partition_id AND s.version = @version AND s.sequence <= @known
ORDER BY s.sequence DESC
LIMIT 1;

-- name: TaxSummary :many
SELECT
    t.period,
    t.tax_group,
    t.currency,
    coalesce((
        SELECT s.rate
        FROM ap.tax_settings AS s
        WHERE s.partition_id = @partition_id AND s.version = @version AND s.tax_group = t.tax_group AND s.sequence <= @known
        ORDER BY s.sequence DESC
        LIMIT 1
    ), '')::text AS rate,
    t.base::text AS base,
    t.recoverable::text AS recoverable,
    t.not_recoverable::text AS not_recoverable,
    t.output::text AS output,
    t.base_functional::text AS base_functional,
    t.recoverable_functional::text AS recoverable_functional,
    t.not_recoverable_functional::text AS not_recoverable_functional,
    t.output_functional::text AS output_functional
FROM (
    SELECT
        (CASE WHEN @by_period::boolean THEN l.period ELSE '' END)::text AS period,
        l.tax_group,
        l.currency,
        coalesce(sum(l.amount) FILTER (WHERE l.part = 'base'), 0) AS base,
        coalesce(sum(l.amount) FILTER (WHERE l.part = 'recoverable'), 0) AS recoverable,
        coalesce(sum(l.amount) FILTER (WHERE l.part = 'not_recoverable'), 0) AS not_recoverable,
        coalesce(-sum(l.amount) FILTER (WHERE l.part = 'output'), 0) AS output,
        coalesce(sum(l.functional_amount) FILTER (WHERE l.part = 'base'), 0) AS base_functional,
        coalesce(sum(l.functional_amount) FILTER (WHERE l.part = 'recoverable'), 0) AS recoverable_functional,
        coalesce(sum(l.functional_amount) FILTER (WHERE l.part = 'not_recoverable'), 0) AS not_recoverable_functional,
        coalesce(-sum(l.functional_amount) FILTER (WHERE l.part = 'output'), 0) AS output_functional
    FROM ap.tax_lines AS l
    WHERE
        l.partition_id = @partition_id AND l.version = @version AND l.effective_date BETWEEN @from_date AND @as_of AND l.sequence <= @known
        AND l.functional_currency = @functional_currency
    GROUP BY 1, l.tax_group, l.currency
) AS t
ORDER BY t.period, t.tax_group, t.currency;

-- TaxLines reads the lines behind the summary's rows of a group, but for withheld tax.

-- name: TaxLines :many
SELECT
    l.sequence,
    l.line_number,
    l.effective_date,
    l.period,
    l.part,
    l.currency,
    (CASE WHEN l.part = 'output' THEN -l.amount ELSE l.amount END)::text AS amount,
    (CASE WHEN l.part = 'output' THEN -l.functional_amount ELSE l.functional_amount END)::text AS functional_amount,
    l.journal_number,
    l.document_id,
    l.payment_id,
    coalesce(l.event_id::text, '')::text AS event_id
FROM ap.tax_lines AS l
WHERE
    l.partition_id = @partition_id AND l.version = @version AND l.effective_date BETWEEN @from_date AND @as_of AND l.sequence <= @known
    AND l.functional_currency = @functional_currency AND l.tax_group = @tax_group AND l.part <> 'withholding'
    AND (@period::text = '' OR l.period = @period)
    AND (l.sequence, l.line_number) > (@after_sequence::bigint, @after_line::integer)
ORDER BY l.sequence, l.line_number
LIMIT @page_size;
