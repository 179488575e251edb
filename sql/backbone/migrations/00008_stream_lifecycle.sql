-- +goose Up

-- The state of a stream, in the row of its version because every append reads that row
-- under the head lock anyway. An ordinary stream has NULL in all columns. The stream.*
-- events of the stream are authoritative; an append writes the row together with them.
--   lifecycle         NULL: active
--   metadata          the part of the stream's metadata that the log enforces: limits, access list
--   readable_from     first version that readers see after a soft deletion
--   metadata_version  version of the event that set the metadata last
-- No row has a lifecycle yet, so the constraint is added without checking the rows.
ALTER TABLE backbone.stream_versions
    ADD COLUMN readable_from bigint,
    ADD COLUMN metadata_version bigint,
    ADD CONSTRAINT stream_versions_lifecycle CHECK (lifecycle IN ('deleted', 'tombstoned')) NOT VALID;
