-- name: CloseStepInsert :exec
INSERT INTO gl.close_steps (
    partition_id, version, sequence, recorded_at, day, event_id, tenant_id, legal_entity, kind, item, counterparty, actor_id, data
)
VALUES (
    @partition_id, @version, @sequence, @recorded_at, @day, @event_id, @tenant_id, @legal_entity, @kind, @item, @counterparty, @actor_id, cast(cast(@data AS text) AS json)
)
ON CONFLICT DO NOTHING;

-- name: CloseSteps :many
-- The steps of some kinds, in order. With days only those that count on one of them.
SELECT s.sequence, s.kind, s.item, s.day, s.event_id, s.recorded_at, s.actor_id, s.data::text AS data
FROM gl.close_steps AS s
WHERE s.partition_id = @partition_id AND s.version = @version AND s.sequence <= @known AND s.kind = ANY(@kinds::text[])
    AND (@item::text = '' OR s.item = @item::text)
    AND (sqlc.narg('from_day')::date IS NULL OR s.day BETWEEN sqlc.narg('from_day')::date AND sqlc.narg('to_day')::date)
ORDER BY s.sequence;

-- name: DueSteps :many
-- The steps of a kind in a span of days that no later step of another kind has ended: journals
-- that are not reversed, intents that are not decided. A step without a day counts on any.
SELECT s.item, s.event_id, s.data::text AS data
FROM gl.close_steps AS s
WHERE s.partition_id = @partition_id AND s.version = @version AND s.sequence <= @known AND s.kind = @kind::text
    AND (s.day IS NULL OR s.day BETWEEN @from_day::date AND @to_day::date)
    AND NOT EXISTS (
        SELECT 1
        FROM gl.close_steps AS e
        WHERE e.partition_id = s.partition_id AND e.version = s.version AND e.item = s.item AND e.sequence > s.sequence AND e.sequence <= @known
            AND e.kind = ANY(@ended_by::text[])
    )
ORDER BY s.sequence;

-- name: PairSteps :many
-- The steps of pairs that a legal entity began or is the counterparty of: its own as known at a
-- sequence, and those of the other legal entity of its tenant up to a time.
WITH pairs AS (
    SELECT o.item
    FROM gl.close_steps AS o
    WHERE o.partition_id = @partition_id AND o.version = @version AND o.sequence <= @known AND o.kind IN ('pair_initiated', 'pair_mirrored', 'pair_refused')
    UNION
    SELECT t.item
    FROM gl.close_steps AS t
    WHERE t.tenant_id = @tenant_id AND t.version = @version AND t.counterparty = @legal_entity AND t.counterparty <> '' AND t.kind = 'pair_initiated'
        AND t.recorded_at <= @until
)

SELECT
    s.partition_id, s.legal_entity, s.sequence, s.kind, s.item, s.counterparty, s.day, s.event_id, s.recorded_at, s.actor_id, s.data::text AS data
FROM gl.close_steps AS s
INNER JOIN pairs ON pairs.item = s.item
WHERE s.tenant_id = @tenant_id AND s.version = @version AND s.kind LIKE 'pair_%'
    AND ((s.partition_id = @partition_id AND s.sequence <= @known) OR (s.partition_id <> @partition_id AND s.recorded_at <= @until))
ORDER BY s.item, s.recorded_at, s.partition_id, s.sequence;

-- name: ForeignBalances :many
-- Balances in currencies other than the functional one, of the lines up to a day.
SELECT l.account, l.currency, sum(CASE WHEN l.side = 'debit' THEN l.amount ELSE -l.amount END)::text AS amount
FROM gl.journal_lines AS l
WHERE l.partition_id = @partition_id AND l.version = @version AND l.effective_date <= @as_of AND l.sequence <= @known
    AND l.functional_currency = @functional_currency AND l.currency <> @functional_currency
GROUP BY l.account, l.currency
HAVING sum(CASE WHEN l.side = 'debit' THEN l.amount ELSE -l.amount END) <> 0
ORDER BY l.account, l.currency;

-- name: ResultAccounts :many
-- The accounts of income and expense with a balance of a span of days.
SELECT l.account
FROM gl.journal_lines AS l
INNER JOIN (
    SELECT DISTINCT ON (a.code) a.code, a.type
    FROM gl.accounts AS a
    WHERE a.partition_id = @partition_id AND a.version = @version AND a.sequence <= @known
    ORDER BY a.code, a.sequence DESC
) AS c ON c.code = l.account AND c.type IN ('income', 'expense')
WHERE l.partition_id = @partition_id AND l.version = @version AND l.effective_date BETWEEN @from_date::date AND @as_of::date AND l.sequence <= @known
    AND l.functional_currency = @functional_currency
GROUP BY l.account
HAVING sum(CASE WHEN l.side = 'debit' THEN l.functional_amount ELSE -l.functional_amount END) <> 0
ORDER BY l.account;

-- name: CalendarPeriods :many
SELECT c.fiscal_year, c.year_start, c.year_end, c.period, c.period_start, c.period_end
FROM gl.calendar_periods AS c
WHERE c.partition_id = @partition_id AND c.version = @version AND c.sequence <= @known
ORDER BY c.period_start;

-- name: PairLines :many
-- The lines of journals of pairs, for the amount that each side has on its account with the
-- other one.
SELECT j.partition_id, j.journal_id, j.journal_number, j.effective_date, l.line_number, l.side, l.amount::text AS amount, l.currency, l.functional_amount::text AS functional_amount, l.functional_currency
FROM gl.journals AS j
INNER JOIN gl.journal_lines AS l ON l.partition_id = j.partition_id AND l.version = j.version AND l.sequence = j.sequence
WHERE j.version = @version AND j.partition_id = ANY(@partitions::integer[]) AND j.journal_id = ANY(@journal_ids::text[])
    AND j.journal_type = 'intercompany' AND l.amount <> 0
ORDER BY j.partition_id, j.journal_id, l.line_number;
