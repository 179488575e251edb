-- +goose Up

-- How a stream stands, kept beside its version because every append looks at that
-- row under the head lock anyway. NULL everywhere is an ordinary stream. The truth
-- are the stream.* events of the stream; the row is written with them.
--   lifecycle         NULL: active
--   metadata          what the log obeys of the stream's metadata: limits, access list
--   readable_from     first version that a soft deletion left to be read
--   metadata_version  version of the event that set the metadata last
-- No row has a lifecycle yet, so there is nothing to look through for the check.
ALTER TABLE backbone.stream_versions
    ADD COLUMN readable_from bigint,
    ADD COLUMN metadata_version bigint,
    ADD CONSTRAINT stream_versions_lifecycle CHECK (lifecycle IN ('deleted', 'tombstoned')) NOT VALID;
