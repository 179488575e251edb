-- name: JournalInsert :exec
INSERT INTO gl.journals (
    partition_id, version, sequence, recorded_at, effective_date, event_id, source_event_id, journal_id, reverses_journal_id,
    journal_number, journal_type, description, functional_currency, fiscal_year, period, source_module,
    intent_id, actor_id, approvers, correlation_id, document_date
)
SELECT
    @partition_id::integer, @version::integer, j.sequence, j.recorded_at, j.effective_date, j.event_id, j.source_event_id, j.journal_id, j.reverses_journal_id,
    j.journal_number, j.journal_type, j.description, j.functional_currency, j.fiscal_year, j.period, j.source_module,
    j.intent_id, j.actor_id, string_to_array(j.approvers, chr(10)), j.correlation_id, nullif(j.document_date, '')::date
FROM (
    -- set-returning functions in one list advance together
    SELECT
        unnest(@sequences::bigint[]) AS sequence,
        unnest(@recorded_ats::timestamptz[]) AS recorded_at,
        unnest(@effective_dates::date[]) AS effective_date,
        unnest(@event_ids::uuid[]) AS event_id,
        unnest(@source_event_ids::text[]) AS source_event_id,
        unnest(@journal_ids::text[]) AS journal_id,
        unnest(@reverses_journal_ids::text[]) AS reverses_journal_id,
        unnest(@journal_numbers::text[]) AS journal_number,
        unnest(@journal_types::text[]) AS journal_type,
        unnest(@descriptions::text[]) AS description,
        unnest(@functional_currencies::text[]) AS functional_currency,
        unnest(@fiscal_years::text[]) AS fiscal_year,
        unnest(@periods::text[]) AS period,
        unnest(@source_modules::text[]) AS source_module,
        unnest(@intent_ids::uuid[]) AS intent_id,
        unnest(@actor_ids::text[]) AS actor_id,
        unnest(@approvers::text[]) AS approvers, -- one on each line, since arrays of arrays are rectangular
        unnest(@correlation_ids::text[]) AS correlation_id,
        unnest(@document_dates::text[]) AS document_date -- '' for none
) AS j
ON CONFLICT DO NOTHING;

-- name: JournalReversalInsert :exec
INSERT INTO gl.journal_reversals (partition_id, version, sequence, journal_id, reversed_by)
VALUES (@partition_id, @version, @sequence, @journal_id, @reversed_by)
ON CONFLICT DO NOTHING;

-- name: Journals :many
-- Journals by sequence, with the totals of their lines.
SELECT
    j.sequence, j.recorded_at, j.effective_date, j.event_id, j.source_event_id, j.journal_id, j.reverses_journal_id, j.journal_number,
    j.journal_type, j.description, j.functional_currency, j.fiscal_year, j.period, j.source_module, j.intent_id, j.actor_id, j.approvers, j.correlation_id, j.document_date,
    t.debit::text AS total_debit, t.lines::integer AS lines,
    coalesce((
        SELECT o.journal_number
        FROM gl.journals AS o
        WHERE o.partition_id = j.partition_id AND o.version = j.version AND o.journal_id = j.reverses_journal_id AND o.sequence <= @known
        LIMIT 1
    ), '')::text AS reverses_number,
    coalesce(r.reversed_by, '')::text AS reversed_by,
    coalesce((
        SELECT o.journal_number
        FROM gl.journals AS o
        WHERE o.partition_id = j.partition_id AND o.version = j.version AND o.journal_id = r.reversed_by AND o.sequence <= @known
        LIMIT 1
    ), '')::text AS reversed_by_number
FROM gl.journals AS j
CROSS JOIN LATERAL (
    SELECT coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'debit'), 0) AS debit, count(*) AS lines
    FROM gl.journal_lines AS l
    WHERE l.partition_id = j.partition_id AND l.version = j.version AND l.sequence = j.sequence
) AS t
LEFT JOIN gl.journal_reversals AS r
    ON r.partition_id = j.partition_id AND r.version = j.version AND r.journal_id = j.journal_id AND r.sequence <= @known
WHERE j.partition_id = @partition_id AND j.version = @version
    AND j.sequence > @after AND j.sequence <= @known
    AND j.effective_date <= @as_of
    AND j.effective_date >= @from_date
    AND (@journal_type::text = '' OR j.journal_type = @journal_type::text)
    AND (@period::text = '' OR j.period = @period::text)
    AND (@number_from::text = '' OR j.journal_number COLLATE "C" >= @number_from::text)
    AND (@number_to::text = '' OR j.journal_number COLLATE "C" <= @number_to::text)
ORDER BY j.sequence
LIMIT @max_rows;

-- name: JournalSequence :one
-- The journal with a number or an id.
SELECT j.sequence
FROM gl.journals AS j
WHERE j.partition_id = @partition_id AND j.version = @version AND j.sequence <= @known
    AND (j.journal_number COLLATE "C" = @name::text OR j.journal_id = @name::text)
ORDER BY j.sequence
LIMIT 1;

-- name: NumberSeries :many
-- The series of journal numbers. Numbers of raw journals that are of no series are left out.
SELECT
    s.series::text AS series, min(s.number)::bigint AS first_number, max(s.number)::bigint AS last_number,
    count(*)::bigint AS numbers, count(DISTINCT s.number)::bigint AS different
FROM (
    SELECT substring(j.journal_number from '^(.+)-[0-9]+$') AS series, substring(j.journal_number from '-([0-9]{1,18})$')::bigint AS number
    FROM gl.journals AS j
    WHERE j.partition_id = @partition_id AND j.version = @version AND j.sequence <= @known
        AND j.journal_number ~ '^(AL|CL|FX|GJ|IC|OB|RV|SL)-.+-[0-9]{6,18}$'
) AS s
GROUP BY s.series
ORDER BY s.series COLLATE "C";

-- name: NumberBreaks :many
-- The places of a series where a number does not follow the one before: after - before is 0
-- for a repeated number and more than 1 for a gap.
SELECT b.before::bigint AS before, b.number::bigint AS after
FROM (
    SELECT n.number, lag(n.number, 1, 0::bigint) OVER (ORDER BY n.number) AS before
    FROM (
        SELECT substring(j.journal_number from '-([0-9]{1,18})$')::bigint AS number
        FROM gl.journals AS j
        WHERE j.partition_id = @partition_id AND j.version = @version AND j.sequence <= @known
            AND substring(j.journal_number from '^(.+)-[0-9]+$') = @series::text
            AND j.journal_number ~ '-[0-9]{6,18}$'
    ) AS n
) AS b
WHERE b.number - b.before <> 1
ORDER BY b.number;
