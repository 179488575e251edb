-- +goose Up

-- Several versions of a projection have their rows in the same tables, so every row has
-- the number of its version. Existing rows are of version 1. The column itself costs
-- nothing; the indexes are built again, about a second per million rows, while the tables
-- are locked.
ALTER TABLE gl.ledgers
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT ledgers_pkey,
    ADD CONSTRAINT ledgers_pkey PRIMARY KEY (partition_id, version, sequence);
ALTER TABLE gl.accounts
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT accounts_pkey,
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (partition_id, version, code, sequence);
ALTER TABLE gl.journals
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT journals_pkey,
    ADD CONSTRAINT journals_pkey PRIMARY KEY (partition_id, version, sequence);
ALTER TABLE gl.journal_lines
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT journal_lines_pkey,
    ADD CONSTRAINT journal_lines_pkey PRIMARY KEY (partition_id, version, sequence, line_number);
ALTER TABLE gl.journal_reversals
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT journal_reversals_pkey,
    ADD CONSTRAINT journal_reversals_pkey PRIMARY KEY (partition_id, version, journal_id);

DROP INDEX gl.journal_lines_account;
CREATE INDEX journal_lines_account ON gl.journal_lines (partition_id, version, account, effective_date, sequence, line_number)
    INCLUDE (side, functional_amount, functional_currency);
