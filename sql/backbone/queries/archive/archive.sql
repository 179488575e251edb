-- The archive: segments of payloads that have left the database.

-- name: ArchivePayloads :exec
SELECT backbone.archive_payloads(@partition_id::int, @term::bigint, @event::bigint, @sequences::bigint[], @redactions::bigint,
    @state_keys::text[], @page_keys::text[], @page_states::bytea[], @page_macs::bytea[]);

-- name: RestorePayloads :one
SELECT backbone.restore_payloads(@partition_id::int, @first_sequence::bigint, @sequences::bigint[], @salts::bytea[], @payloads::text[])::bigint AS missing;

-- name: AwaitArchiving :exec
SELECT backbone.await_archiving();

-- name: CountEntityRedactions :one
-- Those of events that refer to an entity.
SELECT count(*) FROM backbone.pii_redactions r
JOIN backbone.event_keys k ON k.partition_id = r.partition_id AND k.key = @key AND k.sequence = r.sequence
WHERE r.partition_id = @partition_id AND r.sequence <= @until::bigint;

-- name: ReplaceStates :exec
SELECT backbone.replace_states(@partition_id::int, @first_sequence::bigint, @first_key::text, @mac::bytea, @page_keys::text[], @page_states::bytea[], @page_macs::bytea[]);

-- name: ListStatePages :many
-- The pages that may have states with one of the keys.
SELECT DISTINCT a.first_sequence, a.first_key, a.packed, a.mac
FROM backbone.archive_segments s
CROSS JOIN (SELECT unnest(@keys::text[]) AS key) k
CROSS JOIN LATERAL (
    SELECT x.first_sequence, x.first_key, x.packed, x.mac FROM backbone.archive_states x
    WHERE x.partition_id = @partition_id AND x.first_sequence = s.first_sequence AND x.first_key <= k.key
    ORDER BY x.first_key DESC
    LIMIT 1
) a
WHERE s.partition_id = @partition_id
ORDER BY a.first_sequence, a.first_key;

-- name: GetEntityStatePage :one
-- The page that may have the state of an entity: of the segment that has its newest archived event.
SELECT a.first_sequence, a.first_key, a.packed, a.mac
FROM (
    SELECT k.sequence FROM backbone.event_keys k
    WHERE k.partition_id = @partition_id AND k.key = @key
      AND k.sequence <= (SELECT max(m.last_sequence) FROM backbone.archive_segments m WHERE m.partition_id = @partition_id)
      AND NOT EXISTS (SELECT FROM backbone.event_payloads p WHERE p.partition_id = @partition_id AND p.sequence = k.sequence)
    ORDER BY k.sequence DESC
    LIMIT 1
) e
CROSS JOIN LATERAL (
    SELECT s.first_sequence, s.last_sequence FROM backbone.archive_segments s
    WHERE s.partition_id = @partition_id AND s.first_sequence <= e.sequence
    ORDER BY s.first_sequence DESC
    LIMIT 1
) s
CROSS JOIN LATERAL (
    SELECT x.first_sequence, x.first_key, x.packed, x.mac FROM backbone.archive_states x
    WHERE x.partition_id = @partition_id AND x.first_sequence = s.first_sequence AND x.first_key <= @key
    ORDER BY x.first_key DESC
    LIMIT 1
) a
WHERE e.sequence <= s.last_sequence;

-- name: GetStreamStatePage :one
-- The same of a stream, whose state has the key.
SELECT a.first_sequence, a.first_key, a.packed, a.mac
FROM (
    SELECT v.sequence FROM backbone.events v
    WHERE v.partition_id = @partition_id AND v.stream_type = @stream_type AND v.stream_id = @stream_id
      AND v.sequence <= (SELECT max(m.last_sequence) FROM backbone.archive_segments m WHERE m.partition_id = @partition_id)
      AND NOT EXISTS (SELECT FROM backbone.event_payloads p WHERE p.partition_id = @partition_id AND p.sequence = v.sequence)
    ORDER BY v.stream_version DESC
    LIMIT 1
) e
CROSS JOIN LATERAL (
    SELECT s.first_sequence, s.last_sequence FROM backbone.archive_segments s
    WHERE s.partition_id = @partition_id AND s.first_sequence <= e.sequence
    ORDER BY s.first_sequence DESC
    LIMIT 1
) s
CROSS JOIN LATERAL (
    SELECT x.first_sequence, x.first_key, x.packed, x.mac FROM backbone.archive_states x
    WHERE x.partition_id = @partition_id AND x.first_sequence = s.first_sequence AND x.first_key <= @key
    ORDER BY x.first_key DESC
    LIMIT 1
) a
WHERE e.sequence <= s.last_sequence;

-- name: ListSegments :many
-- The segments of a partition in order, from one that begins after a sequence.
SELECT s.* FROM backbone.archive_segments s
WHERE s.partition_id = @partition_id AND s.first_sequence > @after::bigint
ORDER BY s.first_sequence
LIMIT @page_size::int;

-- name: MeasureArchive :many
-- What each partition has in the archive.
SELECT s.partition_id, count(*) AS segments, sum(s.records)::bigint AS records, max(s.last_sequence)::bigint AS last_sequence, max(s.archived_at)::timestamptz AS archived_at
FROM backbone.archive_segments s
GROUP BY s.partition_id
ORDER BY s.partition_id;

-- name: ListProjectionsBehind :many
-- The projections that have not read a partition through a sequence.
SELECT p.name, p.version
FROM backbone.projections p
WHERE p.role IN ('building', 'active', 'retained') AND p.scope IN (0, @partition_id::int)
  AND NOT EXISTS (
    SELECT FROM backbone.projection_checkpoints c
    WHERE c.projection = p.name AND c.version = p.version AND c.partition_id = @partition_id AND c.sequence >= @through::bigint)
ORDER BY p.name, p.version;
