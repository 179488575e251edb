-- name: CalendarPeriodInsert :exec
INSERT INTO gl.calendar_periods (partition_id, version, sequence, fiscal_year, year_start, year_end, period, period_start, period_end)
SELECT
    @partition_id::integer, @version::integer, @sequence::bigint, @fiscal_year::text, @year_start::date, @year_end::date,
    unnest(@periods::text[]), unnest(@period_starts::date[]), unnest(@period_ends::date[])
ON CONFLICT DO NOTHING;

-- name: PeriodStateInsert :exec
INSERT INTO gl.period_states (partition_id, version, sequence, recorded_at, event_id, intent_id, module, period, state, actor_id, approvers, reason)
VALUES (@partition_id, @version, @sequence, @recorded_at, @event_id, @intent_id, @module, @period, @state, @actor_id, @approvers, @reason)
ON CONFLICT DO NOTHING;

-- name: Periods :many
-- Each period with its state for each module, as known at a sequence.
SELECT
    m::text AS module, c.fiscal_year, c.period, c.period_start, c.period_end,
    coalesce(s.state, 'not_open')::text AS state, coalesce(s.recorded_at, to_timestamp(0))::timestamptz AS changed_at, coalesce(s.actor_id, '')::text AS actor_id,
    coalesce(s.approvers, '{}')::text[] AS approvers, coalesce(s.reason, '')::text AS reason, s.event_id, s.intent_id
FROM gl.calendar_periods AS c
CROSS JOIN unnest(ARRAY['gl', 'ap']) AS m
LEFT JOIN LATERAL (
    SELECT p.state, p.recorded_at, p.actor_id, p.approvers, p.reason, p.event_id, p.intent_id
    FROM gl.period_states AS p
    WHERE p.partition_id = c.partition_id AND p.version = c.version AND p.module = m AND p.period = c.period AND p.sequence <= @known
    ORDER BY p.sequence DESC
    LIMIT 1
) AS s ON true
WHERE c.partition_id = @partition_id AND c.version = @version AND c.sequence <= @known
    AND (@module::text = '' OR m = @module::text)
    AND (@fiscal_year::text = '' OR c.fiscal_year = @fiscal_year::text)
    AND (@period::text = '' OR c.period = @period::text)
    AND (@state::text = '' OR coalesce(s.state, 'not_open') = @state::text)
ORDER BY c.period_start, module DESC;

-- name: FiscalYearStart :one
-- The first day of the fiscal year that a day is in.
SELECT c.year_start
FROM gl.calendar_periods AS c
WHERE c.partition_id = @partition_id AND c.version = @version AND c.sequence <= @known AND @day::date BETWEEN c.year_start AND c.year_end
LIMIT 1;
