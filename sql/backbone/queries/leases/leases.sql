-- name: HoldLeases :many
INSERT INTO backbone.leases AS l (name, partition_id, holder, term, taken_at, expires_at)
SELECT r.name, r.partition_id, @holder::text, 1, statement_timestamp(), statement_timestamp() + @ttl::interval
FROM (
    SELECT DISTINCT u.name, u.partition_id
    FROM (SELECT unnest(@names::text[]) AS name, unnest(@partitions::int[]) AS partition_id) AS u
    ORDER BY u.name, u.partition_id
) AS r
ON CONFLICT (name, partition_id) DO UPDATE
SET term = l.term + CASE WHEN l.holder = excluded.holder THEN 0 ELSE 1 END,
    taken_at = CASE WHEN l.holder = excluded.holder THEN l.taken_at ELSE excluded.taken_at END,
    holder = excluded.holder,
    expires_at = excluded.expires_at
WHERE l.holder = excluded.holder OR l.expires_at <= statement_timestamp()
RETURNING l.name, l.partition_id, l.holder, l.term, l.taken_at, l.expires_at;

-- name: ReleaseLeases :exec
-- Locks in the order of HoldLeases, so that two nodes never wait for each other.
WITH own AS (
    SELECT o.name, o.partition_id
    FROM backbone.leases o
    JOIN (SELECT unnest(@names::text[]) AS name, unnest(@partitions::int[]) AS partition_id) AS r
      ON r.name = o.name AND r.partition_id = o.partition_id
    WHERE o.holder = @holder
    ORDER BY o.name, o.partition_id
    FOR UPDATE OF o
)
UPDATE backbone.leases l
SET holder = '', expires_at = '1970-01-01 00:00:00+00'
FROM own
WHERE l.name = own.name AND l.partition_id = own.partition_id AND l.holder = @holder;

-- name: ListLockedLeases :many
-- The wanted leases whose rows another session locks at this moment.
WITH wanted AS (
    SELECT unnest(@names::text[]) AS name, unnest(@partitions::int[]) AS partition_id
), free AS (
    SELECT o.name, o.partition_id
    FROM backbone.leases o
    JOIN wanted w ON w.name = o.name AND w.partition_id = o.partition_id
    FOR UPDATE OF o SKIP LOCKED
)
SELECT l.name, l.partition_id
FROM backbone.leases l
JOIN wanted w ON w.name = l.name AND w.partition_id = l.partition_id
WHERE NOT EXISTS (SELECT FROM free f WHERE f.name = l.name AND f.partition_id = l.partition_id);

-- name: ListLeases :many
SELECT l.name, l.partition_id, l.holder, l.term, l.taken_at, l.expires_at
FROM backbone.leases l
WHERE @name::text = '' OR l.name = @name
ORDER BY l.name, l.partition_id;

-- name: BeatNode :many
WITH gone AS (
    DELETE FROM backbone.nodes o
    WHERE o.node IN (
        SELECT d.node FROM backbone.nodes d
        WHERE d.node <> @node AND d.seen_at < statement_timestamp() - @forget::interval
        FOR UPDATE SKIP LOCKED
    )
), beat AS (
    INSERT INTO backbone.nodes AS n (node, seen_at)
    VALUES (@node, statement_timestamp())
    ON CONFLICT (node) DO UPDATE SET seen_at = greatest(n.seen_at, excluded.seen_at)
    RETURNING n.node
)
SELECT b.node FROM beat b
UNION
SELECT n.node FROM backbone.nodes n WHERE n.seen_at > statement_timestamp() - @within::interval
ORDER BY 1;

-- name: ListAliveNodes :many
SELECT n.node FROM backbone.nodes n WHERE n.node = @node OR n.seen_at > statement_timestamp() - @within::interval ORDER BY n.node;

-- name: DeleteNode :exec
DELETE FROM backbone.nodes WHERE node = @node;

-- name: BeatWorkNode :many
WITH gone AS (
    DELETE FROM backbone.work_nodes o
    WHERE o.work = @work AND o.node IN (
        SELECT d.node FROM backbone.work_nodes d
        WHERE d.work = @work AND d.node <> @node AND d.seen_at < statement_timestamp() - @forget::interval
        FOR UPDATE SKIP LOCKED
    )
), beat AS (
    INSERT INTO backbone.work_nodes AS n (work, node, seen_at)
    VALUES (@work, @node, statement_timestamp())
    ON CONFLICT (work, node) DO UPDATE SET seen_at = greatest(n.seen_at, excluded.seen_at)
    RETURNING n.node
)
SELECT b.node FROM beat b
UNION
SELECT n.node FROM backbone.work_nodes n WHERE n.work = @work AND n.seen_at > statement_timestamp() - @within::interval
ORDER BY 1;

-- name: ListAliveWorkNodes :many
SELECT n.node FROM backbone.work_nodes n
WHERE n.work = @work AND (n.node = @node OR n.seen_at > statement_timestamp() - @within::interval)
ORDER BY n.node;

-- name: DeleteWorkNode :exec
DELETE FROM backbone.work_nodes WHERE work = @work AND node = @node;

-- name: PruneLeases :execrows
-- Skips rows that another session locks: the next call removes them.
DELETE FROM backbone.leases l
USING (
    SELECT o.name, o.partition_id FROM backbone.leases o
    WHERE o.name >= @prefix::text AND starts_with(o.name, @prefix::text) AND o.name <> ALL (@keep::text[]) AND o.expires_at <= statement_timestamp()
    ORDER BY o.name, o.partition_id
    FOR UPDATE SKIP LOCKED
) AS gone
WHERE l.name = gone.name AND l.partition_id = gone.partition_id;
