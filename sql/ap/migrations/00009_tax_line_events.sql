-- +goose Up

-- The event of each tax line, and what it is about: the document or payment whose journal has the
-- line. Lines of earlier versions lack them; the next version of ap.tax is built with them.
ALTER TABLE ap.tax_lines
    ADD COLUMN event_id uuid,
    ADD COLUMN journal_number text NOT NULL DEFAULT '',
    ADD COLUMN document_id text COLLATE "C" NOT NULL DEFAULT '', -- '' for the journal of a payment
    ADD COLUMN payment_id text COLLATE "C" NOT NULL DEFAULT '';
