-- +goose Up

-- An event that changes or blocks a vendor writes a row too, with the columns that it
-- changes: on a date each column has the newest value. The row of the registration has all.
ALTER TABLE ap.vendors
    ALTER COLUMN natural_person DROP NOT NULL,
    ALTER COLUMN event_id DROP NOT NULL,
    ALTER COLUMN country DROP NOT NULL,
    ALTER COLUMN status DROP NOT NULL,
    DROP CONSTRAINT vendors_status_check,
    ADD CONSTRAINT vendors_status_check CHECK (status IN ('active', 'payment_blocked', 'blocked'));

-- Bank accounts: a row for each request, with sealed copies, and for each decision on one.
CREATE TABLE ap.vendor_accounts (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    effective_date date NOT NULL,
    vendor_id      text COLLATE "C" NOT NULL,
    request_id     text COLLATE "C" NOT NULL,
    currency       text COLLATE "C" NOT NULL,
    state          text NOT NULL CHECK (state IN ('requested', 'approved', 'rejected')),
    subject        text COLLATE "C" NOT NULL,
    iban           json,
    account        json,
    bank           json,
    bic            json,
    holder         json,
    CONSTRAINT vendor_accounts_pkey PRIMARY KEY (partition_id, version, vendor_id, request_id, sequence)
);

CREATE INDEX vendor_accounts_subject_idx ON ap.vendor_accounts (partition_id, subject) WHERE subject <> '';

GRANT SELECT, INSERT, UPDATE, DELETE ON ap.vendor_accounts TO backbone_app;
GRANT SELECT ON ap.vendor_accounts TO backbone_reader;
