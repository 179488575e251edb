-- +goose Up

-- Statements that were discarded; sequence is that of gl.bank_statement.discarded, which ends the
-- last import before it.
CREATE TABLE gl.bank_discards (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    part         integer NOT NULL,
    account      text COLLATE "C" NOT NULL,
    statement_id text COLLATE "C" NOT NULL,
    CONSTRAINT bank_discards_pkey PRIMARY KEY (partition_id, version, sequence)
);

-- The sequences of gl.journal.posted by journal. Matches name journals by id, and lines are found
-- by sequence.
CREATE TABLE gl.bank_journals (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    journal_id   text COLLATE "C" NOT NULL,
    CONSTRAINT bank_journals_pkey PRIMARY KEY (partition_id, version, journal_id)
);

-- Rows of earlier releases have null; the next version of the projection fills the columns, and
-- is built beside them. The indexes let the reconciliation compare lines and matches by keys.
ALTER TABLE gl.bank_matches
    ADD COLUMN statement_sequence bigint; -- of the import that the line is of; 0 if there is none
ALTER TABLE gl.bank_match_lines
    ADD COLUMN journal_sequence bigint, -- of gl.journal.posted; 0 if there is none
    ADD COLUMN account          text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX bank_statements_id ON gl.bank_statements (partition_id, version, account, statement_id, part, sequence);
CREATE INDEX bank_matches_begun ON gl.bank_matches (partition_id, version, account, statement_sequence, line_number, sequence, matched_as_of) WHERE matched;
CREATE INDEX bank_matches_ended ON gl.bank_matches (partition_id, version, account, statement_sequence, line_number, sequence) WHERE NOT matched;
CREATE INDEX bank_match_lines_begun ON gl.bank_match_lines (partition_id, version, account, journal_sequence, line_number, sequence, matched_as_of) WHERE matched;
CREATE INDEX bank_match_lines_ended ON gl.bank_match_lines (partition_id, version, account, journal_sequence, line_number, sequence) WHERE NOT matched;

GRANT SELECT, INSERT, UPDATE, DELETE ON gl.bank_discards, gl.bank_journals TO backbone_app;
GRANT SELECT ON gl.bank_discards, gl.bank_journals TO backbone_reader;
