-- +goose Up

-- Columns of further reports. Rows of version 1 of the projection have the defaults;
-- version 2 fills them, and is built beside it.
ALTER TABLE gl.accounts
    ADD COLUMN event_id    uuid,
    ADD COLUMN normal_side text NOT NULL DEFAULT '',
    ADD COLUMN parent      text COLLATE "C" NOT NULL DEFAULT '', -- '' if none
    ADD COLUMN postable    boolean NOT NULL DEFAULT true,
    ADD COLUMN control     text NOT NULL DEFAULT 'none';
ALTER TABLE gl.journals
    ADD COLUMN intent_id      uuid,
    ADD COLUMN actor_id       text NOT NULL DEFAULT '',
    ADD COLUMN approvers      text[] NOT NULL DEFAULT '{}', -- who approved the intent, beside its actor
    ADD COLUMN correlation_id text NOT NULL DEFAULT '';

CREATE INDEX journals_number ON gl.journals (partition_id, version, journal_number COLLATE "C", sequence);
CREATE INDEX journals_id ON gl.journals (partition_id, version, journal_id, sequence);
-- The few journals that a report without closings has to know.
CREATE INDEX journals_closing ON gl.journals (partition_id, version, sequence)
    WHERE journal_type = 'closing' OR reverses_journal_id <> '';

-- Blocks of accounts, as they were known at each sequence.
CREATE TABLE gl.account_blocks (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    blocked      boolean NOT NULL,
    code         text COLLATE "C" NOT NULL,
    CONSTRAINT account_blocks_pkey PRIMARY KEY (partition_id, version, code, sequence)
);

-- The periods of the fiscal years; sequence is that of gl.calendar.extended. A year never
-- changes.
CREATE TABLE gl.calendar_periods (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    year_start   date NOT NULL,
    year_end     date NOT NULL,
    period_start date NOT NULL,
    period_end   date NOT NULL,
    fiscal_year  text COLLATE "C" NOT NULL,
    period       text COLLATE "C" NOT NULL,
    CONSTRAINT calendar_periods_pkey PRIMARY KEY (partition_id, version, sequence, period)
);

-- Changes of the state of a module's period.
CREATE TABLE gl.period_states (
    sequence     bigint NOT NULL,
    recorded_at  timestamptz NOT NULL,
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    event_id     uuid NOT NULL,
    intent_id    uuid,
    module       text COLLATE "C" NOT NULL,
    period       text COLLATE "C" NOT NULL,
    state        text NOT NULL,
    actor_id     text NOT NULL,
    approvers    text[] NOT NULL,
    reason       text NOT NULL,
    CONSTRAINT period_states_pkey PRIMARY KEY (partition_id, version, module, period, sequence)
);

-- Exchange rates as they were set. The last one of a day counts.
CREATE TABLE gl.exchange_rates (
    sequence      bigint NOT NULL,
    recorded_at   timestamptz NOT NULL,
    partition_id  integer NOT NULL,
    version       integer NOT NULL,
    rate_date     date NOT NULL,
    event_id      uuid NOT NULL,
    from_currency text COLLATE "C" NOT NULL,
    to_currency   text COLLATE "C" NOT NULL,
    rate_type     text COLLATE "C" NOT NULL,
    rate          numeric(22, 12) NOT NULL,
    actor_id      text NOT NULL,
    reason        text NOT NULL,
    CONSTRAINT exchange_rates_pkey PRIMARY KEY (partition_id, version, from_currency, to_currency, rate_type, rate_date, sequence)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON gl.account_blocks, gl.calendar_periods, gl.period_states, gl.exchange_rates TO backbone_app;
GRANT SELECT ON gl.account_blocks, gl.calendar_periods, gl.period_states, gl.exchange_rates TO backbone_reader;
