-- name: BankStatementInsert :exec
INSERT INTO gl.bank_statements (partition_id, version, sequence, part, first_date, statement_date, event_id, account, statement_id, currency, opening_balance, closing_balance)
VALUES (@partition_id, @version, @sequence, @part, @first_date, @statement_date, @event_id, @account, @statement_id, @currency, (@opening_balance::text)::numeric, (@closing_balance::text)::numeric)
ON CONFLICT DO NOTHING;

-- name: BankLineInsert :exec
INSERT INTO gl.bank_lines (partition_id, version, sequence, line_number, part, booking_date, value_date, account, statement_id, currency, amount, reference, end_to_end_id, description)
SELECT
    @partition_id::integer, @version::integer, @sequence::bigint, l.line_number, @part::integer, l.booking_date, nullif(l.value_date, '')::date,
    @account::text, @statement_id::text, @currency::text, l.amount::numeric, l.reference, l.end_to_end_id, l.description
FROM (
    -- set-returning functions in one list advance together
    SELECT
        unnest(@line_numbers::integer[]) AS line_number,
        unnest(@booking_dates::date[]) AS booking_date,
        unnest(@value_dates::text[]) AS value_date,
        unnest(@amounts::text[]) AS amount,
        unnest(@refs::text[]) AS reference,
        unnest(@end_to_end_ids::text[]) AS end_to_end_id,
        unnest(@descriptions::text[]) AS description
) AS l
ON CONFLICT DO NOTHING;

-- name: BankDiscardInsert :exec
INSERT INTO gl.bank_discards (partition_id, version, sequence, part, account, statement_id)
VALUES (@partition_id, @version, @sequence, @part, @account, @statement_id)
ON CONFLICT DO NOTHING;

-- name: BankJournalInsert :exec
INSERT INTO gl.bank_journals (partition_id, version, sequence, journal_id)
SELECT @partition_id, @version, unnest(@sequences::bigint[]), unnest(@journal_ids::text[])
ON CONFLICT DO NOTHING;

-- name: BankMatchInsert :exec
-- A statement that was discarded may have been imported again, so the line is of the last import.
INSERT INTO gl.bank_matches (partition_id, version, sequence, part, line_number, matched_as_of, matched, account, statement_id, statement_sequence)
VALUES (@partition_id, @version, @sequence, @part, @line_number, @matched_as_of, @matched, @account, @statement_id, coalesce((
    SELECT s.sequence
    FROM gl.bank_statements AS s
    WHERE s.partition_id = @partition_id AND s.version = @version AND s.account = @account AND s.statement_id = @statement_id AND s.part = @part AND s.sequence < @sequence
    ORDER BY s.sequence DESC
    LIMIT 1
), 0))
ON CONFLICT DO NOTHING;

-- name: BankMatchLineInsert :exec
INSERT INTO gl.bank_match_lines (partition_id, version, sequence, line_number, matched_as_of, matched, account, journal_id, journal_sequence)
VALUES (@partition_id, @version, @sequence, @line_number, @matched_as_of, @matched, @account, @journal_id, coalesce((
    SELECT j.sequence
    FROM gl.bank_journals AS j
    WHERE j.partition_id = @partition_id AND j.version = @version AND j.journal_id = @journal_id
), 0))
ON CONFLICT DO NOTHING;

-- name: JournalPaymentInsert :exec
INSERT INTO gl.journal_payments (partition_id, version, sequence, payment_id)
VALUES (@partition_id, @version, @sequence, @payment_id)
ON CONFLICT DO NOTHING;

-- name: BankCurrency :one
-- The currency of an account's newest statement.
SELECT s.currency
FROM gl.bank_statements AS s
WHERE s.partition_id = @partition_id AND s.version = @version AND s.account = @account AND s.sequence <= @known
    AND NOT EXISTS (
        SELECT
        FROM gl.bank_discards AS d
        WHERE d.partition_id = s.partition_id AND d.version = s.version AND d.account = s.account AND d.statement_id = s.statement_id AND d.part = s.part
            AND d.sequence > s.sequence AND d.sequence <= @known
    )
ORDER BY s.sequence DESC
LIMIT 1;

-- name: BankAccounts :many
-- Accounts that are not blocked and have statements of a day: the date of the newest statement,
-- of whatever day, and whether one is missing after a statement of an earlier day.
WITH statements AS (
    SELECT s.account, s.currency, s.first_date, s.statement_date,
        coalesce(s.opening_balance <> lag(s.closing_balance) OVER chain AND lag(s.statement_date) OVER chain < @as_of, false) AS is_gap
    FROM gl.bank_statements AS s
    WHERE s.partition_id = @partition_id AND s.version = @version AND s.sequence <= @known
        AND NOT EXISTS (
            SELECT
            FROM gl.bank_discards AS d
            WHERE d.partition_id = s.partition_id AND d.version = s.version AND d.account = s.account AND d.statement_id = s.statement_id AND d.part = s.part
                AND d.sequence > s.sequence AND d.sequence <= @known
        )
    WINDOW chain AS (PARTITION BY s.account, s.currency ORDER BY s.statement_date, s.sequence)
)
SELECT s.account, s.currency, max(s.statement_date)::date AS last_statement,
    bool_or(s.is_gap)::boolean AS has_gap
FROM statements AS s
WHERE NOT coalesce((
    SELECT b.blocked
    FROM gl.account_blocks AS b
    WHERE b.partition_id = @partition_id AND b.version = @ledger_version AND b.code = s.account AND b.sequence <= @known
    ORDER BY b.sequence DESC
    LIMIT 1
), false)
GROUP BY s.account, s.currency
HAVING min(s.first_date) <= @as_of
ORDER BY s.account, s.currency;

-- name: JoinWhole :exec
-- Until the end of the transaction the planner joins by hashing or merging. Where it knows too
-- little about an account it expects one line, and would compare each line with each match.
SELECT set_config('enable_nestloop', 'off', true);

-- name: HasEarlierBankRows :one
-- Rows of the release before lack the keys that the reconciliation compares.
SELECT EXISTS (SELECT FROM gl.bank_matches AS m WHERE m.partition_id = @partition_id AND m.version = @version AND m.account = @account AND m.matched AND m.statement_sequence IS NULL);

-- name: BankReconciliation :many
-- What is not matched, statement side first, by day. Every row has the sums of all rows and of
-- both sides. A match counts from the last day of its lines. Where a statement does not begin
-- with the balance with which the one before ended, the difference is a row of its own. A line of
-- the statement has a proposal if one line of the books alone has its amount and its reference,
-- and no other line of the statement has them.
--
-- Most lines are matched. So lines and matches are compared by their keys, which indexes have,
-- and only those that are left are read. It runs under JoinWhole. A statement adds up, so its
-- balances stand for its lines unless some of them are of later days.
WITH discarded AS (
    SELECT s.sequence
    FROM gl.bank_discards AS d
    JOIN gl.bank_statements AS s ON s.partition_id = d.partition_id AND s.version = d.version AND s.account = d.account AND s.statement_id = d.statement_id AND s.part = d.part
        AND s.sequence < d.sequence
    WHERE d.partition_id = @partition_id AND d.version = @version AND d.account = @account AND d.sequence <= @known
),
statements AS (
    SELECT s.sequence, s.first_date, s.statement_date, s.statement_id, s.part, s.opening_balance, s.closing_balance,
        s.opening_balance - coalesce(lag(s.closing_balance) OVER chain, 0) AS gap, lag(s.sequence) OVER chain IS NULL AS is_first
    FROM gl.bank_statements AS s
    WHERE s.partition_id = @partition_id AND s.version = @version AND s.account = @account AND s.currency = @currency AND s.sequence <= @known
        AND NOT EXISTS (SELECT FROM discarded AS d WHERE d.sequence = s.sequence)
    WINDOW chain AS (ORDER BY s.statement_date, s.sequence)
),
bank_taken AS (
    SELECT m.statement_sequence, m.line_number
    FROM gl.bank_matches AS m
    WHERE m.partition_id = @partition_id AND m.version = @version AND m.account = @account AND m.matched AND m.sequence <= @known AND m.matched_as_of <= @as_of
        AND NOT EXISTS (
            SELECT
            FROM gl.bank_matches AS e
            WHERE e.partition_id = @partition_id AND e.version = @version AND e.account = @account AND NOT e.matched
                AND e.statement_sequence = m.statement_sequence AND e.line_number = m.line_number AND e.sequence > m.sequence AND e.sequence <= @known
        )
),
bank_open AS MATERIALIZED (
    SELECT l.sequence, l.line_number
    FROM gl.bank_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @version AND l.account = @account AND l.currency = @currency AND l.sequence <= @known AND l.booking_date <= @as_of
        AND NOT EXISTS (SELECT FROM discarded AS d WHERE d.sequence = l.sequence)
        AND NOT EXISTS (SELECT FROM bank_taken AS m WHERE m.statement_sequence = l.sequence AND m.line_number = l.line_number)
),
bank AS MATERIALIZED (
    SELECT o.sequence, o.line_number, l.booking_date, l.value_date, l.statement_id, l.part, l.amount, l.reference, l.end_to_end_id, l.description
    FROM bank_open AS o
    CROSS JOIN LATERAL (
        SELECT x.booking_date, x.value_date, x.statement_id, x.part, x.amount, x.reference, x.end_to_end_id, x.description
        FROM gl.bank_lines AS x
        WHERE x.partition_id = @partition_id AND x.version = @version AND x.sequence = o.sequence AND x.line_number = o.line_number
        LIMIT 1 -- by the index, since few lines are left
    ) AS l
),
book_taken AS (
    SELECT m.journal_sequence, m.line_number
    FROM gl.bank_match_lines AS m
    WHERE m.partition_id = @partition_id AND m.version = @version AND m.account = @account AND m.matched AND m.sequence <= @known AND m.matched_as_of <= @as_of
        AND NOT EXISTS (
            SELECT
            FROM gl.bank_match_lines AS e
            WHERE e.partition_id = @partition_id AND e.version = @version AND e.account = @account AND NOT e.matched
                AND e.journal_sequence = m.journal_sequence AND e.line_number = m.line_number AND e.sequence > m.sequence AND e.sequence <= @known
        )
),
book_open AS MATERIALIZED (
    SELECT l.sequence, l.line_number, l.effective_date, l.description, CASE WHEN l.side = 'debit' THEN l.amount ELSE -l.amount END AS amount
    FROM gl.journal_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @ledger_version AND l.account = @account AND l.currency = @currency AND l.sequence <= @known
        AND l.effective_date <= @as_of AND l.amount <> 0
        AND NOT EXISTS (SELECT FROM book_taken AS m WHERE m.journal_sequence = l.sequence AND m.line_number = l.line_number)
),
book AS MATERIALIZED (
    SELECT o.sequence, o.line_number, o.effective_date, j.journal_id, j.journal_number, coalesce(nullif(o.description, ''), j.description) AS description, o.amount
    FROM book_open AS o
    CROSS JOIN LATERAL (
        SELECT x.journal_id, x.journal_number, x.description
        FROM gl.journals AS x
        WHERE x.partition_id = @partition_id AND x.version = @ledger_version AND x.sequence = o.sequence
        LIMIT 1
    ) AS j
),
bank_keys AS (
    SELECT DISTINCT s.sequence, s.line_number, s.amount, unnest(ARRAY[s.end_to_end_id, s.reference]) AS name
    FROM bank AS s
),
book_keys AS (
    SELECT b.sequence, b.line_number, b.amount, b.journal_id, b.journal_number AS name
    FROM book AS b
    UNION
    SELECT b.sequence, b.line_number, b.amount, b.journal_id, p.payment_id
    FROM book AS b
    JOIN gl.journal_payments AS p ON p.partition_id = @partition_id AND p.version = @version AND p.sequence = b.sequence
),
pairs AS (
    SELECT x.sequence, x.line_number, x.journal_id, x.journal_line,
        count(*) OVER (PARTITION BY x.sequence, x.line_number) AS of_line, count(*) OVER (PARTITION BY x.journal_id, x.journal_line) AS of_journal
    FROM (
        SELECT DISTINCT s.sequence, s.line_number, b.journal_id, b.line_number AS journal_line
        FROM bank_keys AS s
        JOIN book_keys AS b ON b.name = s.name AND b.amount = s.amount
        WHERE s.name <> ''
    ) AS x
),
items AS (
    SELECT 1 AS side, 'statement_line' AS item, s.booking_date AS day, s.sequence, s.line_number, s.value_date, s.statement_id, s.part, s.amount, s.reference, s.end_to_end_id,
        s.description, '' AS journal_id, '' AS journal_number, coalesce(p.journal_id, '') AS proposed_journal_id, coalesce(p.journal_line, 0) AS proposed_line
    FROM bank AS s
    LEFT JOIN pairs AS p ON p.sequence = s.sequence AND p.line_number = s.line_number AND p.of_line = 1 AND p.of_journal = 1
    UNION ALL
    SELECT 1, CASE WHEN s.is_first THEN 'opening_balance' ELSE 'missing_statement' END, s.first_date, s.sequence, 0, NULL, s.statement_id, s.part, s.gap, '', '', '', '', '', '', 0
    FROM statements AS s
    WHERE s.gap <> 0 AND s.first_date <= @as_of
    UNION ALL
    SELECT 2, 'book_line', b.effective_date, b.sequence, b.line_number, NULL, '', 0, b.amount, '',
        coalesce((SELECT min(p.payment_id) FROM gl.journal_payments AS p WHERE p.partition_id = @partition_id AND p.version = @version AND p.sequence = b.sequence), ''),
        b.description, b.journal_id, b.journal_number, '', 0
    FROM book AS b
),
sums AS (
    SELECT
        (
            SELECT coalesce(sum(CASE WHEN l.side = 'debit' THEN l.amount ELSE -l.amount END), 0)
            FROM gl.journal_lines AS l
            WHERE l.partition_id = @partition_id AND l.version = @ledger_version AND l.account = @account AND l.currency = @currency AND l.sequence <= @known AND l.effective_date <= @as_of
        ) AS book_balance,
        (
            SELECT coalesce(sum(s.gap + CASE
                WHEN s.statement_date <= @as_of THEN s.closing_balance - s.opening_balance
                ELSE coalesce((
                    SELECT sum(l.amount)
                    FROM gl.bank_lines AS l
                    WHERE l.partition_id = @partition_id AND l.version = @version AND l.sequence = s.sequence AND l.booking_date <= @as_of
                ), 0)
            END), 0)
            FROM statements AS s
            WHERE s.first_date <= @as_of
        ) AS statement_balance,
        (SELECT coalesce(sum(i.amount), 0) FROM items AS i WHERE i.side = 2) AS book_items,
        (SELECT coalesce(sum(i.amount), 0) FROM items AS i WHERE i.side = 1) AS statement_items,
        (SELECT count(*) FROM bank) + (SELECT count(*) FROM book) AS unmatched_lines,
        (SELECT max(s.statement_date) FROM statements AS s WHERE s.first_date <= @as_of) AS last_statement
)
SELECT
    t.book_balance::text AS book_balance, t.statement_balance::text AS statement_balance, t.book_items::text AS book_items, t.statement_items::text AS statement_items, t.unmatched_lines::bigint AS unmatched_lines,
    t.last_statement::date AS last_statement, coalesce(i.item, '')::text AS item, i.day::date AS day, coalesce(i.sequence, 0)::bigint AS sequence, coalesce(i.line_number, 0)::integer AS line_number,
    i.value_date::date AS value_date, coalesce(i.statement_id, '')::text AS statement_id, coalesce(i.part, 0)::integer AS part, coalesce(i.amount, 0)::text AS amount,
    coalesce(i.reference, '')::text AS reference, coalesce(i.end_to_end_id, '')::text AS end_to_end_id, coalesce(i.description, '')::text AS description,
    coalesce(i.journal_id, '')::text AS journal_id, coalesce(i.journal_number, '')::text AS journal_number,
    coalesce(i.proposed_journal_id, '')::text AS proposed_journal_id, coalesce(i.proposed_line, 0)::integer AS proposed_line
FROM sums AS t
LEFT JOIN (
    SELECT x.* FROM items AS x ORDER BY x.side, x.day, x.sequence, x.line_number LIMIT @max_rows OFFSET @skip
) AS i ON true
ORDER BY i.side, i.day, i.sequence, i.line_number;
