-- +goose Up

-- The lines of control accounts, for the reports of subledgers. Modules may read this view of
-- the ledger's schema and nothing else in it. An account's control never changes once it
-- has lines.
CREATE VIEW gl.control_lines WITH (security_invoker = true) AS
SELECT
    l.partition_id, l.version, l.sequence, l.effective_date, l.account, c.control, coalesce(l.dimensions ->> 'vendor', '') AS vendor, l.currency, l.functional_currency,
    CASE WHEN l.side = 'credit' THEN l.amount ELSE -l.amount END AS credit_amount,
    CASE WHEN l.side = 'credit' THEN l.functional_amount ELSE -l.functional_amount END AS credit_functional
FROM gl.journal_lines AS l
JOIN (SELECT DISTINCT a.partition_id, a.version, a.code, a.control FROM gl.accounts AS a WHERE a.control <> 'none') AS c
    ON c.partition_id = l.partition_id AND c.version = l.version AND c.code = l.account;

GRANT SELECT ON gl.control_lines TO backbone_app, backbone_reader;
