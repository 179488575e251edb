-- +goose Up

-- The tax groups of the ledger's settings as they were known at each sequence, with the accounts
-- that their tax is posted to. A group of '' has the functional currency alone.
CREATE TABLE ap.tax_settings (
    sequence            bigint NOT NULL,
    partition_id        integer NOT NULL,
    version             integer NOT NULL,
    tax_group           text COLLATE "C" NOT NULL,
    rate                text NOT NULL, -- percent
    input_account       text NOT NULL,
    output_account      text NOT NULL,
    functional_currency text NOT NULL,
    CONSTRAINT tax_settings_pkey PRIMARY KEY (partition_id, version, sequence, tax_group)
);

-- The lines with a tax code of journals of accounts payable. The account decides what a line is:
-- deductible input tax (recoverable), tax owed to the tax office (output), tax that is an expense
-- (not_recoverable), or what is taxed (base). Debits are positive.
CREATE TABLE ap.tax_lines (
    sequence            bigint NOT NULL,
    partition_id        integer NOT NULL,
    version             integer NOT NULL,
    line_number         integer NOT NULL,
    effective_date      date NOT NULL,
    period              text NOT NULL,
    tax_group           text COLLATE "C" NOT NULL,
    part                text NOT NULL,
    currency            text NOT NULL,
    amount              numeric(19, 4) NOT NULL, -- in currency
    functional_amount   numeric(19, 4) NOT NULL,
    functional_currency text NOT NULL,
    CONSTRAINT tax_lines_pkey PRIMARY KEY (partition_id, version, sequence, line_number)
);

CREATE INDEX tax_lines_date_idx ON ap.tax_lines (partition_id, version, effective_date);

GRANT SELECT, INSERT, UPDATE, DELETE ON ap.tax_settings, ap.tax_lines TO backbone_app;
GRANT SELECT ON ap.tax_settings, ap.tax_lines TO backbone_reader;
