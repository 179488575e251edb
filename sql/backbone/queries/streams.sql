-- name: GetStreamStatus :one
SELECT x.version, x.lifecycle, x.readable_from, x.metadata, x.metadata_version
FROM backbone.stream_versions x
WHERE x.partition_id = @partition_id AND x.stream_type = @stream_type AND x.stream_id = @stream_id;

-- name: ChangeStreams :execrows
-- UpsertStreamVersions for streams whose state or metadata change in this group; all
-- others keep their narrow rows. Without a new metadata version the metadata stay.
INSERT INTO backbone.stream_versions AS s (
    partition_id, stream_type, stream_id, version, first_sequence, last_sequence, lifecycle, readable_from, metadata, metadata_version
)
SELECT h.partition_id, u.stream_type, u.stream_id, u.version, u.first_sequence, u.last_sequence,
    u.lifecycle, u.readable_from, u.metadata::json, u.metadata_version
FROM backbone.partition_heads h
JOIN (SELECT unnest(@partition_ids::int[]) AS partition_id,
             unnest(@stream_types::text[]) AS stream_type,
             unnest(@stream_ids::text[]) AS stream_id,
             unnest(@versions::bigint[]) AS version,
             unnest(@first_sequences::bigint[]) AS first_sequence,
             unnest(@last_sequences::bigint[]) AS last_sequence,
             unnest(@lifecycles::text[]) AS lifecycle,
             unnest(@readable_from::bigint[]) AS readable_from,
             unnest(@metadata::text[]) AS metadata,
             unnest(@metadata_versions::bigint[]) AS metadata_version) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY (@locked::int[])
ON CONFLICT (partition_id, stream_type, stream_id)
DO UPDATE SET version = excluded.version, last_sequence = excluded.last_sequence, lifecycle = excluded.lifecycle,
              readable_from = COALESCE(excluded.readable_from, s.readable_from),
              metadata = CASE WHEN excluded.metadata_version IS NULL THEN s.metadata ELSE excluded.metadata END,
              metadata_version = COALESCE(excluded.metadata_version, s.metadata_version);
