-- +goose Up

CREATE SCHEMA IF NOT EXISTS ap;

-- An event writes each row, and no row changes later: the items open on a date, as known
-- at a sequence, are a query over rows up to both.

-- The functional currency, as it was known at each sequence.
CREATE TABLE ap.ledgers (
    sequence            bigint NOT NULL,
    partition_id        integer NOT NULL,
    functional_currency text NOT NULL,
    CONSTRAINT ledgers_pkey PRIMARY KEY (partition_id, sequence)
);

-- One row per submitted document; sequence is that of the submission.
CREATE TABLE ap.documents (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    invoice_date   date NOT NULL,
    due_date       date NOT NULL,
    document_id    text COLLATE "C" NOT NULL,
    vendor_id      text COLLATE "C" NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('invoice', 'prepayment', 'opening', 'credit_memo')),
    invoice_number text NOT NULL,
    currency       text NOT NULL,
    dimensions     jsonb NOT NULL, -- of the document as a whole
    CONSTRAINT documents_pkey PRIMARY KEY (partition_id, document_id)
);

-- Changes of a document's open amount. Amounts payable are positive: an invoice's
-- posting is positive, a credit memo's negative, settlements have the opposite sign.
CREATE TABLE ap.document_entries (
    sequence            bigint NOT NULL,
    partition_id        integer NOT NULL,
    effective_date      date NOT NULL,
    event_id            uuid NOT NULL,
    document_id         text COLLATE "C" NOT NULL,
    action              text NOT NULL CHECK (action IN ('posted')),
    amount              numeric(19, 4) NOT NULL, -- document currency
    functional_amount   numeric(19, 4) NOT NULL,
    functional_currency text NOT NULL,
    CONSTRAINT document_entries_pkey PRIMARY KEY (partition_id, document_id, sequence)
);

-- Holds that were placed and released.
CREATE TABLE ap.document_holds (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    effective_date date NOT NULL,
    released       boolean NOT NULL,
    document_id    text COLLATE "C" NOT NULL,
    hold_id        text COLLATE "C" NOT NULL,
    kind           text NOT NULL,
    blocks         text NOT NULL, -- '' when released
    CONSTRAINT document_holds_pkey PRIMARY KEY (partition_id, document_id, sequence)
);

GRANT USAGE ON SCHEMA ap TO backbone_app, backbone_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON ap.ledgers, ap.documents, ap.document_entries, ap.document_holds TO backbone_app;
GRANT SELECT ON ap.ledgers, ap.documents, ap.document_entries, ap.document_holds TO backbone_reader;
