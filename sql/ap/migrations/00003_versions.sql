-- +goose Up

-- Several versions of a projection have their rows in the same tables, so every row has
-- the number of its version. Existing rows are of version 1. The column itself costs
-- nothing; the primary keys are built again, about a second per million rows, while the
-- tables are locked.
ALTER TABLE ap.ledgers
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT ledgers_pkey,
    ADD CONSTRAINT ledgers_pkey PRIMARY KEY (partition_id, version, sequence);
ALTER TABLE ap.documents
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT documents_pkey,
    ADD CONSTRAINT documents_pkey PRIMARY KEY (partition_id, version, document_id);
ALTER TABLE ap.document_entries
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT document_entries_pkey,
    ADD CONSTRAINT document_entries_pkey PRIMARY KEY (partition_id, version, document_id, sequence);
ALTER TABLE ap.document_holds
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT document_holds_pkey,
    ADD CONSTRAINT document_holds_pkey PRIMARY KEY (partition_id, version, document_id, sequence);
ALTER TABLE ap.vendors
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT vendors_pkey,
    ADD CONSTRAINT vendors_pkey PRIMARY KEY (partition_id, version, vendor_id, sequence);
ALTER TABLE ap.vendor_contacts
    ADD COLUMN version integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT vendor_contacts_pkey,
    ADD CONSTRAINT vendor_contacts_pkey PRIMARY KEY (partition_id, version, vendor_id, contact_id, sequence);
