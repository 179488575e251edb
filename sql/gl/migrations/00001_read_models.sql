-- +goose Up

CREATE SCHEMA IF NOT EXISTS gl;

-- The functional currency, as it was known at each sequence.
CREATE TABLE gl.ledgers (
    sequence            bigint NOT NULL,
    partition_id        integer NOT NULL,
    functional_currency text NOT NULL,
    CONSTRAINT ledgers_pkey PRIMARY KEY (partition_id, sequence)
);

-- Names of accounts, as they were known at each sequence.
CREATE TABLE gl.accounts (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    code         text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    type         text NOT NULL,
    CONSTRAINT accounts_pkey PRIMARY KEY (partition_id, code, sequence)
);

-- One row per journal; sequence is the event's.
CREATE TABLE gl.journals (
    sequence            bigint NOT NULL,
    recorded_at         timestamptz NOT NULL,
    partition_id        integer NOT NULL,
    effective_date      date NOT NULL,
    event_id            uuid NOT NULL,
    source_event_id     text NOT NULL, -- '' if none
    journal_id          text COLLATE "C" NOT NULL,
    reverses_journal_id text NOT NULL, -- '' if none
    journal_number      text COLLATE "C" NOT NULL,
    journal_type        text NOT NULL,
    description         text NOT NULL,
    functional_currency text NOT NULL,
    fiscal_year         text NOT NULL,
    period              text NOT NULL,
    source_module       text NOT NULL, -- '' if the ledger's own
    CONSTRAINT journals_pkey PRIMARY KEY (partition_id, sequence)
);

-- One row per line. Amounts are never negative, the side is the direction; a
-- functional amount is in functional_currency.
CREATE TABLE gl.journal_lines (
    sequence            bigint NOT NULL,
    partition_id        integer NOT NULL,
    line_number         integer NOT NULL,
    effective_date      date NOT NULL,
    rate_date           date,
    side                text NOT NULL CHECK (side IN ('debit', 'credit')),
    account             text COLLATE "C" NOT NULL,
    amount              numeric(19, 4) NOT NULL,
    currency            text NOT NULL,
    functional_amount   numeric(19, 4) NOT NULL,
    functional_currency text NOT NULL,
    rate                numeric(22, 12),
    description         text NOT NULL,
    tax_code            text NOT NULL,
    dimensions          jsonb NOT NULL,
    CONSTRAINT journal_lines_pkey PRIMARY KEY (partition_id, sequence, line_number)
);

-- Account ledger in its order; the included columns let a trial balance read the
-- index alone.
CREATE INDEX journal_lines_account ON gl.journal_lines (partition_id, account, effective_date, sequence, line_number)
    INCLUDE (side, functional_amount, functional_currency);

-- Reversed journals with their reversals; sequence is that of gl.journal.reversed.
CREATE TABLE gl.journal_reversals (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    journal_id   text COLLATE "C" NOT NULL,
    reversed_by  text NOT NULL,
    CONSTRAINT journal_reversals_pkey PRIMARY KEY (partition_id, journal_id)
);

GRANT USAGE ON SCHEMA gl TO backbone_app, backbone_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON gl.ledgers, gl.accounts, gl.journals, gl.journal_lines, gl.journal_reversals TO backbone_app;
GRANT SELECT ON gl.ledgers, gl.accounts, gl.journals, gl.journal_lines, gl.journal_reversals TO backbone_reader;
