-- name: AccountInsert :exec
INSERT INTO gl.accounts (partition_id, version, sequence, event_id, code, name, type, normal_side, parent, postable, control)
VALUES (@partition_id, @version, @sequence, @event_id, @code, @name, @type, @normal_side, @parent, @postable, @control)
ON CONFLICT DO NOTHING;

-- name: AccountName :one
SELECT name
FROM gl.accounts
WHERE partition_id = @partition_id AND version = @version AND code = @code AND sequence <= @known
ORDER BY sequence DESC
LIMIT 1;

-- name: AccountBlockInsert :exec
INSERT INTO gl.account_blocks (partition_id, version, sequence, code, blocked)
VALUES (@partition_id, @version, @sequence, @code, @blocked)
ON CONFLICT DO NOTHING;

-- name: Chart :many
-- All accounts as known at a sequence.
SELECT DISTINCT ON (a.code)
    a.code, a.name, a.type, a.normal_side, a.parent, a.postable, a.control, a.event_id,
    coalesce((
        SELECT b.blocked
        FROM gl.account_blocks AS b
        WHERE b.partition_id = a.partition_id AND b.version = a.version AND b.code = a.code AND b.sequence <= @known
        ORDER BY b.sequence DESC
        LIMIT 1
    ), false)::boolean AS blocked
FROM gl.accounts AS a
WHERE a.partition_id = @partition_id AND a.version = @version AND a.sequence <= @known
ORDER BY a.code, a.sequence DESC;
