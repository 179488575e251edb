-- +goose Up

-- Version 2 of ap.open-items follows a document through its whole life. Rows that an earlier
-- release writes keep the defaults of the new columns; only the primary key of ap.documents is
-- built again.

-- A document has a row for each of its bodies: drafts, the submission, corrections and
-- reinstatements. As known at a sequence it has the newest body up to it.
ALTER TABLE ap.documents
    DROP CONSTRAINT documents_pkey,
    ADD CONSTRAINT documents_pkey PRIMARY KEY (partition_id, version, document_id, sequence),
    ALTER COLUMN invoice_date DROP NOT NULL, -- a draft may lack dates
    ALTER COLUMN due_date DROP NOT NULL,
    ADD COLUMN action text NOT NULL DEFAULT 'submitted', -- the last part of the event's type
    ADD COLUMN total numeric(19, 4) NOT NULL DEFAULT 0, -- gross, document currency
    ADD COLUMN discount json,
    ADD COLUMN body json; -- the event's data without the vendor's name; null: an earlier release wrote the row

-- Reports look for rows of an earlier release with it, and find none once they are dropped.
CREATE INDEX documents_without_body_idx ON ap.documents (partition_id, version) WHERE body IS NULL;

-- An entry repeats what reports group by, so that they need no other table: vendor, currency
-- and due date of the body that was posted, whose row has body_sequence. counterpart is the
-- document or payment that settled this one.
ALTER TABLE ap.document_entries
    DROP CONSTRAINT document_entries_action_check,
    ADD COLUMN body_sequence bigint NOT NULL DEFAULT 0,
    ADD COLUMN due_date date NOT NULL DEFAULT '-infinity',
    ADD COLUMN vendor_id text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN currency text NOT NULL DEFAULT '',
    ADD COLUMN counterpart text NOT NULL DEFAULT '';

-- Pages of open items read it in its order and stop after the page; aging reads all of it. It
-- has every column that they need.
CREATE INDEX document_entries_items_idx ON ap.document_entries (partition_id, version, vendor_id, due_date, document_id, body_sequence)
INCLUDE (sequence, effective_date, amount, functional_amount, functional_currency, currency, action, event_id);

-- Every event of a document, for its timeline. data is the event's, of a body only its reason.
CREATE TABLE ap.document_steps (
    sequence       bigint NOT NULL,
    recorded_at    timestamptz NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    effective_date date NOT NULL,
    event_id       uuid NOT NULL,
    document_id    text COLLATE "C" NOT NULL,
    action         text NOT NULL, -- the last part of the event's type
    actor_type     text NOT NULL,
    actor_id       text NOT NULL,
    on_behalf_of   text NOT NULL, -- '' for an actor who acts alone
    data           json NOT NULL,
    CONSTRAINT document_steps_pkey PRIMARY KEY (partition_id, version, document_id, sequence)
);

-- The states of a document: each from its event to the next state's, exclusive. An event ends
-- the state before it, which is the only change that a row ever takes.
CREATE TABLE ap.document_states (
    sequence       bigint NOT NULL,
    until_sequence bigint NOT NULL, -- 9223372036854775807 for the latest state
    recorded_at    timestamptz NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    document_id    text COLLATE "C" NOT NULL,
    state          text NOT NULL, -- posted: something is open
    CONSTRAINT document_states_pkey PRIMARY KEY (partition_id, version, document_id, sequence)
);

-- Worklists read the few documents in unfinished states.
CREATE INDEX document_states_state_idx ON ap.document_states (partition_id, version, state, until_sequence);

GRANT SELECT, INSERT, UPDATE, DELETE ON ap.document_steps, ap.document_states TO backbone_app;
GRANT SELECT ON ap.document_steps, ap.document_states TO backbone_reader;
