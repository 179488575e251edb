-- name: GetStreamStatus :one
SELECT x.version, x.lifecycle, x.readable_from, x.metadata, x.metadata_version
FROM backbone.stream_versions x
WHERE x.partition_id = @partition_id AND x.stream_type = @stream_type AND x.stream_id = @stream_id;
