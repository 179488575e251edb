-- +goose Up

-- The payments of runs as they were proposed. Later events change their state, never these
-- figures.
CREATE TABLE ap.payments (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    position       integer NOT NULL, -- in the run, from 1
    documents      integer NOT NULL, -- that the payment settles
    effective_date date NOT NULL,
    pay_date       date NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    payment_id     text COLLATE "C" NOT NULL,
    vendor_id      text COLLATE "C" NOT NULL,
    bank_account   text COLLATE "C" NOT NULL,
    currency       text COLLATE "C" NOT NULL,
    amount         numeric(19, 4) NOT NULL, -- that the bank transfers
    discount       numeric(19, 4) NOT NULL,
    event_id       uuid NOT NULL, -- of the proposal
    CONSTRAINT payments_pkey PRIMARY KEY (partition_id, version, run_id, position, sequence)
);

-- Steps of runs: what happened to the whole run, or with a payment_id to one of its payments
-- before the approval.
CREATE TABLE ap.payment_run_steps (
    recorded_at    timestamptz NOT NULL,
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    effective_date date NOT NULL,
    pay_date       date, -- of a proposal
    step           text NOT NULL CHECK (step IN ('proposed', 'excluded', 'approved', 'rejected', 'exported')),
    run_id         text COLLATE "C" NOT NULL,
    payment_id     text COLLATE "C" NOT NULL, -- '' for a step of the whole run
    bank_account   text COLLATE "C" NOT NULL, -- of a proposal
    actor          text NOT NULL,
    message_id     text NOT NULL, -- of an export
    file_sha256    text NOT NULL, -- of an export
    event_id       uuid NOT NULL,
    CONSTRAINT payment_run_steps_pkey PRIMARY KEY (partition_id, version, run_id, sequence)
);

-- Steps of payments after the approval of their run.
CREATE TABLE ap.payment_steps (
    recorded_at    timestamptz NOT NULL,
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    effective_date date NOT NULL,
    executed_on    date, -- of an execution
    step           text NOT NULL CHECK (step IN ('executed', 'failed', 'voided', 'status_reported')),
    payment_id     text COLLATE "C" NOT NULL,
    actor          text NOT NULL,
    bank_reference text NOT NULL, -- of an execution
    bank_status    text NOT NULL, -- that the bank reported
    reason_code    text NOT NULL, -- of a failure or reported status
    event_id       uuid NOT NULL,
    CONSTRAINT payment_steps_pkey PRIMARY KEY (partition_id, version, payment_id, sequence)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON ap.payments, ap.payment_run_steps, ap.payment_steps TO backbone_app;
GRANT SELECT ON ap.payments, ap.payment_run_steps, ap.payment_steps TO backbone_reader;
