-- name: AccountInsert :exec
INSERT INTO gl.accounts (partition_id, version, sequence, code, name, type)
VALUES (@partition_id, @version, @sequence, @code, @name, @type)
ON CONFLICT DO NOTHING;

-- name: AccountName :one
SELECT name
FROM gl.accounts
WHERE partition_id = @partition_id AND version = @version AND code = @code AND sequence <= @known
ORDER BY sequence DESC
LIMIT 1;
