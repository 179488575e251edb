-- +goose Up

-- From now on an event says which number of which series it took. unbound_through is the last
-- number that was taken before.
ALTER TABLE backbone.number_series ADD COLUMN unbound_through bigint NOT NULL DEFAULT 0;
UPDATE backbone.number_series SET unbound_through = next_number - 1;

-- From now on the last event of a request holds a digest of the row of its idempotency key. The
-- rows from before expire.
ALTER TABLE backbone.idempotency_keys ADD COLUMN bound boolean NOT NULL DEFAULT false;
ALTER TABLE backbone.idempotency_keys ALTER COLUMN bound SET DEFAULT true;

-- No row can claim later to be from before.
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER TABLE backbone.idempotency_keys ADD CONSTRAINT idempotency_keys_bound CHECK (bound OR expires_at <= %L::timestamptz)',
        (SELECT coalesce(max(k.expires_at), '-infinity') FROM backbone.idempotency_keys k));
END
$$;
-- +goose StatementEnd

-- A verification compares the rows with their events.
GRANT SELECT ON backbone.number_series, backbone.idempotency_keys TO backbone_reader;
