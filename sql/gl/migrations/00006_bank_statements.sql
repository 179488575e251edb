-- +goose Up

-- Bank statements, or parts of long ones; sequence is that of gl.bank_statement.imported.
CREATE TABLE gl.bank_statements (
    sequence        bigint NOT NULL,
    partition_id    integer NOT NULL,
    version         integer NOT NULL,
    part            integer NOT NULL,
    first_date      date NOT NULL, -- booking date of the first line, else statement_date
    statement_date  date NOT NULL,
    event_id        uuid NOT NULL,
    account         text COLLATE "C" NOT NULL,
    statement_id    text COLLATE "C" NOT NULL,
    currency        text COLLATE "C" NOT NULL,
    opening_balance numeric(19, 4) NOT NULL,
    closing_balance numeric(19, 4) NOT NULL,
    CONSTRAINT bank_statements_pkey PRIMARY KEY (partition_id, version, sequence)
);
CREATE INDEX bank_statements_account ON gl.bank_statements (partition_id, version, account, currency, statement_date, sequence);

-- Lines of the statements. Amounts are negative for money that went out.
CREATE TABLE gl.bank_lines (
    sequence      bigint NOT NULL,
    partition_id  integer NOT NULL,
    version       integer NOT NULL,
    line_number   integer NOT NULL,
    part          integer NOT NULL,
    booking_date  date NOT NULL,
    value_date    date,
    account       text COLLATE "C" NOT NULL,
    statement_id  text COLLATE "C" NOT NULL,
    currency      text COLLATE "C" NOT NULL,
    amount        numeric(19, 4) NOT NULL,
    reference     text COLLATE "C" NOT NULL, -- '' if none
    end_to_end_id text COLLATE "C" NOT NULL, -- '' if none
    description   text NOT NULL, -- '' if none
    CONSTRAINT bank_lines_pkey PRIMARY KEY (partition_id, version, sequence, line_number)
);
CREATE INDEX bank_lines_account ON gl.bank_lines (partition_id, version, account, currency, booking_date, sequence, line_number);

-- Matches of statement lines, and their ends. The last row of a line says whether it is matched.
CREATE TABLE gl.bank_matches (
    sequence      bigint NOT NULL,
    partition_id  integer NOT NULL,
    version       integer NOT NULL,
    part          integer NOT NULL,
    line_number   integer NOT NULL,
    matched_as_of date NOT NULL, -- the last day of the lines; on earlier days none of them is matched
    matched       boolean NOT NULL,
    account       text COLLATE "C" NOT NULL,
    statement_id  text COLLATE "C" NOT NULL,
    CONSTRAINT bank_matches_pkey PRIMARY KEY (partition_id, version, account, statement_id, part, line_number, sequence)
);

-- The journal lines of the same matches and ends.
CREATE TABLE gl.bank_match_lines (
    sequence      bigint NOT NULL,
    partition_id  integer NOT NULL,
    version       integer NOT NULL,
    line_number   integer NOT NULL,
    matched_as_of date NOT NULL,
    matched       boolean NOT NULL,
    journal_id    text COLLATE "C" NOT NULL,
    CONSTRAINT bank_match_lines_pkey PRIMARY KEY (partition_id, version, journal_id, line_number, sequence)
);

-- The payments that journals refer to; sequence is that of gl.journal.posted.
CREATE TABLE gl.journal_payments (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    payment_id   text COLLATE "C" NOT NULL,
    CONSTRAINT journal_payments_pkey PRIMARY KEY (partition_id, version, sequence, payment_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON gl.bank_statements, gl.bank_lines, gl.bank_matches, gl.bank_match_lines, gl.journal_payments TO backbone_app;
GRANT SELECT ON gl.bank_statements, gl.bank_lines, gl.bank_matches, gl.bank_match_lines, gl.journal_payments TO backbone_reader;
