-- +goose Up

-- The sealed bytes of papers. The event of a paper names them by their digest; verification compares.
-- They are stored before the event, so a crash leaves rows that no event names.
CREATE TABLE backbone.paper_contents (
    stored_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    partition_id integer NOT NULL,
    sha256       bytea NOT NULL,
    paper_id     text COLLATE "C" NOT NULL CHECK (octet_length(paper_id) <= 64),
    sealed       bytea NOT NULL CHECK (octet_length(sealed) <= 21 * 1024 * 1024),
    CONSTRAINT paper_contents_pkey PRIMARY KEY (partition_id, sha256),
    CONSTRAINT paper_contents_digest CHECK (sha256 = pg_catalog.sha256(sealed))
);
-- Sealed bytes do not compress.
ALTER TABLE backbone.paper_contents ALTER COLUMN sealed SET STORAGE EXTERNAL;

-- Deletes bytes that no event names, from before a time and at least a day old: the event is appended
-- in the request that stored them. An event whose payload is not there may name them.
-- +goose StatementBegin
CREATE FUNCTION backbone.sweep_papers(before_at timestamptz) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    deleted bigint;
BEGIN
    DELETE FROM backbone.paper_contents c
    WHERE c.stored_at < least(before_at, clock_timestamp() - interval '1 day')
      AND NOT EXISTS (
        SELECT FROM backbone.stream_versions v
        LEFT JOIN backbone.event_payloads p ON p.partition_id = v.partition_id AND p.sequence = v.first_sequence
        WHERE v.partition_id = c.partition_id AND v.stream_type = 'backbone.paper' AND v.stream_id = c.paper_id
          AND (p.payload IS NULL OR p.payload -> 'data' ->> 'content_sha256' = encode(c.sha256, 'hex')));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION backbone.sweep_papers(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.sweep_papers(timestamptz) TO backbone_app;
-- Not the column stored_at: the time is the database's.
GRANT SELECT, INSERT (partition_id, sha256, paper_id, sealed) ON backbone.paper_contents TO backbone_app;
GRANT SELECT ON backbone.paper_contents TO backbone_reader;
