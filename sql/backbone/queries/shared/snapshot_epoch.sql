-- name: GetSnapshotEpoch :one
SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = @partition_id;
