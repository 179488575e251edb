-- name: JournalInsert :exec
INSERT INTO gl.journals (
    partition_id, version, sequence, recorded_at, effective_date, event_id, source_event_id, journal_id, reverses_journal_id,
    journal_number, journal_type, description, functional_currency, fiscal_year, period, source_module
)
SELECT
    @partition_id::integer, @version::integer, j.sequence, j.recorded_at, j.effective_date, j.event_id, j.source_event_id, j.journal_id, j.reverses_journal_id,
    j.journal_number, j.journal_type, j.description, j.functional_currency, j.fiscal_year, j.period, j.source_module
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
        unnest(@source_modules::text[]) AS source_module
) AS j
ON CONFLICT DO NOTHING;

-- name: JournalReversalInsert :exec
INSERT INTO gl.journal_reversals (partition_id, version, sequence, journal_id, reversed_by)
VALUES (@partition_id, @version, @sequence, @journal_id, @reversed_by)
ON CONFLICT DO NOTHING;
