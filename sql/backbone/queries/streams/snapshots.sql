-- Snapshots of entities and streams. The epoch of a partition is how
-- many redactions it has seen. A snapshot is outdated if an event in it was redacted since.

-- name: LockEntitySnapshots :exec
-- Allows other saves at the same time, and waits for a redaction in progress.
LOCK TABLE backbone.entity_snapshots IN ROW EXCLUSIVE MODE;

-- name: LockStreamSnapshots :exec
LOCK TABLE backbone.stream_snapshots IN ROW EXCLUSIVE MODE;

-- name: ListEntitySnapshots :many
SELECT s.as_of_sequence, s.version, s.event_count, s.created_at, s.fold, s.effective_through, s.status, s.state,
    s.redactions, s.mac,
    s.redactions <> (SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = s.partition_id AND r.sequence <= s.as_of_sequence) AS outdated
FROM backbone.entity_snapshots s
WHERE s.partition_id = @partition_id AND s.entity_type = @entity_type AND s.entity_id = @entity_id
ORDER BY s.as_of_sequence DESC
LIMIT @kept::int;

-- name: CountEntityRedactions :one
SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = @partition_id AND r.sequence <= @until;

-- name: RemoveEntitySnapshot :exec
DELETE FROM backbone.entity_snapshots s
WHERE s.partition_id = @partition_id AND s.entity_type = @entity_type AND s.entity_id = @entity_id AND s.as_of_sequence = @as_of_sequence AND s.mac = @mac;

-- name: SaveEntitySnapshot :execrows
INSERT INTO backbone.entity_snapshots (as_of_sequence, version, event_count, created_at, partition_id, fold, size_bytes,
    effective_through, status, entity_type, entity_id, state, redactions, mac)
SELECT @as_of_sequence, @version, @event_count, @created_at, @partition_id::int, @fold, @size_bytes,
    @effective_through, @status, @entity_type::text, @entity_id::text, @state, @redactions, @mac
WHERE (SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = @partition_id::int) = @epoch::bigint
  AND (SELECT count(*) FROM backbone.entity_snapshots s WHERE s.partition_id = @partition_id::int AND s.entity_type = @entity_type::text
        AND s.entity_id = @entity_id::text AND s.as_of_sequence > @as_of_sequence) < @kept::bigint
ON CONFLICT (partition_id, entity_type, entity_id, as_of_sequence) DO UPDATE SET
    version = excluded.version, event_count = excluded.event_count, created_at = excluded.created_at, fold = excluded.fold,
    size_bytes = excluded.size_bytes, effective_through = excluded.effective_through, status = excluded.status, state = excluded.state,
    redactions = excluded.redactions, mac = excluded.mac;

-- name: DeleteOldEntitySnapshots :exec
DELETE FROM backbone.entity_snapshots d
WHERE d.partition_id = @partition_id AND d.entity_type = @entity_type AND d.entity_id = @entity_id
  AND d.as_of_sequence < (
    SELECT min(n.as_of_sequence) FROM (
        SELECT s.as_of_sequence FROM backbone.entity_snapshots s
        WHERE s.partition_id = @partition_id AND s.entity_type = @entity_type AND s.entity_id = @entity_id
        ORDER BY s.as_of_sequence DESC
        LIMIT @kept::int) n);

-- name: MarkEntitySnapshotsStale :execrows
UPDATE backbone.entity_snapshots SET status = 'stale'
WHERE partition_id = @partition_id AND entity_type = @entity_type AND entity_id = @entity_id
  AND as_of_sequence < @at_sequence AND effective_through > @effective AND status = 'valid';

-- name: GetStreamSnapshot :one
-- The redactions are looked up one by one: a join would read the whole partition.
SELECT s.id, s.version, s.created_at, s.schema_version, s.state_type, s.state, s.metadata, s.redactions, s.mac,
    s.redactions <> (
        SELECT count(*) FROM backbone.pii_redactions r
        WHERE r.partition_id = s.partition_id AND (
            SELECT e.stream_version FROM backbone.events e
            WHERE e.partition_id = @partition_id AND e.sequence = r.sequence AND e.stream_type = s.stream_type AND e.stream_id = s.stream_id
            LIMIT 1) <= s.version) AS outdated
FROM backbone.stream_snapshots s
WHERE s.partition_id = @partition_id AND s.stream_type = @stream_type AND s.stream_id = @stream_id AND s.internal = @internal
  AND (@version::bigint = 0 OR s.version = @version::bigint)
ORDER BY s.version DESC
LIMIT 1;

-- name: CountStreamRedactions :one
SELECT count(*) FROM backbone.pii_redactions r
WHERE r.partition_id = @partition_id AND (
    SELECT e.stream_version FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.sequence = r.sequence AND e.stream_type = @stream_type AND e.stream_id = @stream_id
    LIMIT 1) <= @until::bigint;

-- name: RemoveStreamSnapshot :exec
DELETE FROM backbone.stream_snapshots s
WHERE s.partition_id = @partition_id AND s.stream_type = @stream_type AND s.stream_id = @stream_id AND s.internal = @internal
  AND s.version = @version AND s.mac = @mac;

-- name: SaveStreamSnapshot :execrows
INSERT INTO backbone.stream_snapshots (version, created_at, partition_id, schema_version, size_bytes, internal, id,
    stream_type, stream_id, state_type, state, metadata, redactions, mac)
SELECT @version, @created_at, @partition_id::int, @schema_version, @size_bytes, @internal::bool, @id,
    @stream_type::text, @stream_id::text, @state_type, @state, @metadata, @redactions, @mac
WHERE (SELECT count(*) FROM backbone.pii_redactions r WHERE r.partition_id = @partition_id::int) = @epoch::bigint
  AND (SELECT count(*) FROM backbone.stream_snapshots s WHERE s.partition_id = @partition_id::int AND s.stream_type = @stream_type::text
        AND s.stream_id = @stream_id::text AND s.internal = @internal::bool AND s.version > @version) < @kept::bigint
ON CONFLICT (partition_id, stream_type, stream_id, internal, version) DO UPDATE SET
    created_at = excluded.created_at, schema_version = excluded.schema_version, size_bytes = excluded.size_bytes, id = excluded.id,
    state_type = excluded.state_type, state = excluded.state, metadata = excluded.metadata, redactions = excluded.redactions, mac = excluded.mac
    WHERE excluded.internal;

-- name: DeleteOldStreamSnapshots :exec
DELETE FROM backbone.stream_snapshots d
WHERE d.partition_id = @partition_id AND d.stream_type = @stream_type AND d.stream_id = @stream_id AND d.internal = @internal
  AND d.version < (
    SELECT min(n.version) FROM (
        SELECT s.version FROM backbone.stream_snapshots s
        WHERE s.partition_id = @partition_id AND s.stream_type = @stream_type AND s.stream_id = @stream_id AND s.internal = @internal
        ORDER BY s.version DESC
        LIMIT @kept::int) n);
