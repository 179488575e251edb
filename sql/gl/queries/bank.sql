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

-- name: BankMatchInsert :exec
INSERT INTO gl.bank_matches (partition_id, version, sequence, part, line_number, matched_as_of, matched, account, statement_id)
VALUES (@partition_id, @version, @sequence, @part, @line_number, @matched_as_of, @matched, @account, @statement_id)
ON CONFLICT DO NOTHING;

-- name: BankMatchLineInsert :exec
INSERT INTO gl.bank_match_lines (partition_id, version, sequence, line_number, matched_as_of, matched, journal_id)
VALUES (@partition_id, @version, @sequence, @line_number, @matched_as_of, @matched, @journal_id)
ON CONFLICT DO NOTHING;

-- name: JournalPaymentInsert :exec
INSERT INTO gl.journal_payments (partition_id, version, sequence, payment_id)
VALUES (@partition_id, @version, @sequence, @payment_id)
ON CONFLICT DO NOTHING;

-- name: BankCurrency :one
-- The currency of an account's newest statement.
SELECT currency
FROM gl.bank_statements
WHERE partition_id = @partition_id AND version = @version AND account = @account AND sequence <= @known
ORDER BY sequence DESC
LIMIT 1;

-- name: BankReconciliation :many
-- What is not matched, statement side first, by day. Every row has the sums of all rows and of
-- both sides. A match counts from the last day of its lines. Where a statement does not begin
-- with the balance with which the one before ended, the difference is a row of its own. A line of
-- the statement has a proposal if one line of the books alone has its amount and its reference,
-- and no other line of the statement has them.
WITH statements AS (
    SELECT s.sequence, s.first_date, s.statement_date, s.statement_id, s.part, s.event_id, s.closing_balance,
        s.opening_balance - coalesce(lag(s.closing_balance) OVER chain, 0) AS gap, lag(s.sequence) OVER chain IS NULL AS is_first
    FROM gl.bank_statements AS s
    WHERE s.partition_id = @partition_id AND s.version = @version AND s.account = @account AND s.currency = @currency AND s.sequence <= @known
    WINDOW chain AS (ORDER BY s.statement_date, s.sequence)
),
bank AS (
    SELECT l.sequence, l.line_number, l.booking_date, l.value_date, l.statement_id, l.part, l.amount, l.reference, l.end_to_end_id, l.description,
        coalesce((
            SELECT x.matched AND x.matched_as_of <= @as_of
            FROM gl.bank_matches AS x
            WHERE x.partition_id = l.partition_id AND x.version = l.version AND x.account = l.account AND x.statement_id = l.statement_id AND x.part = l.part
                AND x.line_number = l.line_number AND x.sequence <= @known
            ORDER BY x.sequence DESC
            LIMIT 1
        ), false)::boolean AS matched
    FROM gl.bank_lines AS l
    WHERE l.partition_id = @partition_id AND l.version = @version AND l.account = @account AND l.currency = @currency AND l.sequence <= @known AND l.booking_date <= @as_of
),
book AS (
    SELECT l.sequence, l.line_number, l.effective_date, j.journal_id, j.journal_number, j.event_id, coalesce(nullif(l.description, ''), j.description) AS description,
        CASE WHEN l.side = 'debit' THEN l.amount ELSE -l.amount END AS amount,
        coalesce((
            SELECT x.matched AND x.matched_as_of <= @as_of
            FROM gl.bank_match_lines AS x
            WHERE x.partition_id = l.partition_id AND x.version = @version AND x.journal_id = j.journal_id AND x.line_number = l.line_number AND x.sequence <= @known
            ORDER BY x.sequence DESC
            LIMIT 1
        ), false)::boolean AS matched
    FROM gl.journal_lines AS l
    JOIN gl.journals AS j ON j.partition_id = l.partition_id AND j.version = l.version AND j.sequence = l.sequence
    WHERE l.partition_id = @partition_id AND l.version = @ledger_version AND l.account = @account AND l.currency = @currency AND l.sequence <= @known
        AND l.effective_date <= @as_of AND l.amount <> 0
),
bank_keys AS (
    SELECT DISTINCT s.sequence, s.line_number, s.amount, unnest(ARRAY[s.end_to_end_id, s.reference]) AS name
    FROM bank AS s
    WHERE NOT s.matched
),
book_keys AS (
    SELECT b.sequence, b.line_number, b.amount, b.journal_id, b.journal_number AS name
    FROM book AS b
    WHERE NOT b.matched
    UNION
    SELECT b.sequence, b.line_number, b.amount, b.journal_id, p.payment_id
    FROM book AS b
    JOIN gl.journal_payments AS p ON p.partition_id = @partition_id AND p.version = @version AND p.sequence = b.sequence
    WHERE NOT b.matched
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
    WHERE NOT s.matched
    UNION ALL
    SELECT 1, CASE WHEN s.is_first THEN 'opening_balance' ELSE 'missing_statement' END, s.first_date, s.sequence, 0, NULL, s.statement_id, s.part, s.gap, '', '', '', '', '', '', 0
    FROM statements AS s
    WHERE s.gap <> 0 AND s.first_date <= @as_of
    UNION ALL
    SELECT 2, 'book_line', b.effective_date, b.sequence, b.line_number, NULL, '', 0, b.amount, '',
        coalesce((SELECT min(p.payment_id) FROM gl.journal_payments AS p WHERE p.partition_id = @partition_id AND p.version = @version AND p.sequence = b.sequence), ''),
        b.description, b.journal_id, b.journal_number, '', 0
    FROM book AS b
    WHERE NOT b.matched
),
sums AS (
    SELECT
        (SELECT coalesce(sum(b.amount), 0) FROM book AS b) AS book_balance,
        (SELECT coalesce(sum(s.amount), 0) FROM bank AS s) + (SELECT coalesce(sum(s.gap), 0) FROM statements AS s WHERE s.first_date <= @as_of) AS statement_balance,
        (SELECT coalesce(sum(i.amount), 0) FROM items AS i WHERE i.side = 2) AS book_items,
        (SELECT coalesce(sum(i.amount), 0) FROM items AS i WHERE i.side = 1) AS statement_items,
        (SELECT count(*) FROM items) AS items,
        (SELECT max(s.statement_date) FROM statements AS s WHERE s.first_date <= @as_of) AS last_statement
)
SELECT
    t.book_balance::text AS book_balance, t.statement_balance::text AS statement_balance, t.book_items::text AS book_items, t.statement_items::text AS statement_items,
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
