-- +goose Up

-- As in the other tables an event writes each row: the vendor on a date, as known at a
-- sequence, is the newest row up to both. Personal values are sealed copies of the event's
-- values, with the place they were sealed in; subject is the person they belong to. Once
-- the person is erased they are "[REDACTED]" and subject is ''.

CREATE TABLE ap.vendors (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    effective_date date NOT NULL,
    natural_person boolean NOT NULL,
    event_id       uuid NOT NULL,
    vendor_id      text COLLATE "C" NOT NULL,
    country        text NOT NULL,
    status         text NOT NULL CHECK (status IN ('active')),
    subject        text COLLATE "C" NOT NULL,
    name           json, -- a company's name, or the person as a sealed copy
    CONSTRAINT vendors_pkey PRIMARY KEY (partition_id, vendor_id, sequence)
);

CREATE INDEX vendors_subject_idx ON ap.vendors (partition_id, subject) WHERE subject <> '';

-- Contacts that were added, changed or removed.
CREATE TABLE ap.vendor_contacts (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    effective_date date NOT NULL,
    removed        boolean NOT NULL,
    vendor_id      text COLLATE "C" NOT NULL,
    contact_id     text COLLATE "C" NOT NULL,
    subject        text COLLATE "C" NOT NULL,
    name           json,
    email          json,
    phone          json,
    job_function   json,
    CONSTRAINT vendor_contacts_pkey PRIMARY KEY (partition_id, vendor_id, contact_id, sequence)
);

CREATE INDEX vendor_contacts_subject_idx ON ap.vendor_contacts (partition_id, subject) WHERE subject <> '';

GRANT SELECT, INSERT, UPDATE, DELETE ON ap.vendors, ap.vendor_contacts TO backbone_app;
GRANT SELECT ON ap.vendors, ap.vendor_contacts TO backbone_reader;
