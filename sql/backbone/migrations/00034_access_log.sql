-- +goose Up

-- Reads that matter: opened personal values, exports, verifications. Append only for the
-- application; what is older than the retention goes through the function below.
-- partition_id is that of the tenant's administrative log.
CREATE TABLE backbone.access_log (
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    partition_id integer NOT NULL,
    value_count  integer NOT NULL CHECK (value_count >= 0), -- of subject and class that were opened together
    id           uuid NOT NULL,
    person_id    text COLLATE "C" NOT NULL, -- who read
    principal_id text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    operation    text COLLATE "C" NOT NULL,
    legal_entity text COLLATE "C" NOT NULL, -- '': several
    subject_id   text COLLATE "C" NOT NULL, -- whose data; '' where the kind has none
    class        text COLLATE "C" NOT NULL,
    reason       text NOT NULL CHECK (octet_length(reason) <= 500),
    request_id   text COLLATE "C" NOT NULL,
    CONSTRAINT access_log_pkey PRIMARY KEY (partition_id, at, id)
);
CREATE INDEX access_log_subject ON backbone.access_log (partition_id, subject_id, at) WHERE subject_id <> '';
CREATE INDEX access_log_person ON backbone.access_log (partition_id, person_id, at);

-- Waits for the transactions that are storing accesses, and returns a time: none that is
-- stored later has an earlier one. Without it a digest of an hour could miss a row that is
-- committed after the hour.
-- +goose StatementBegin
CREATE FUNCTION backbone.settle_access_log() RETURNS timestamptz
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '2s'
AS $$
BEGIN
    LOCK TABLE backbone.access_log IN SHARE MODE;
    RETURN clock_timestamp();
END
$$;
-- +goose StatementEnd

-- Deletes the oldest accesses from before a time. Not younger than 7 days, so that with the
-- application's credentials no trace of an attack is removed before it can be found.
-- +goose StatementBegin
CREATE FUNCTION backbone.delete_accesses(of_partition_id integer, before_at timestamptz, most integer) RETURNS integer
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    deleted integer;
BEGIN
    DELETE FROM backbone.access_log a USING (
        SELECT x.at, x.id FROM backbone.access_log x
        WHERE x.partition_id = of_partition_id AND x.at < least(before_at, clock_timestamp() - interval '7 days')
        ORDER BY x.at, x.id
        LIMIT most) old
    WHERE a.partition_id = of_partition_id AND a.at = old.at AND a.id = old.id;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION backbone.settle_access_log() FROM PUBLIC;
REVOKE ALL ON FUNCTION backbone.delete_accesses(integer, timestamptz, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.settle_access_log(), backbone.delete_accesses(integer, timestamptz, integer) TO backbone_app;
-- Not the column at: the time is the database's.
GRANT SELECT, INSERT (partition_id, value_count, id, person_id, principal_id, kind, operation, legal_entity, subject_id, class, reason, request_id)
    ON backbone.access_log TO backbone_app;
GRANT SELECT ON backbone.access_log TO backbone_reader;
