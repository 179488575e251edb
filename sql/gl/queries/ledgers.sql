-- Inserts skip existing rows, since a rebuild applies the same events again.

-- name: LedgerInsert :exec
INSERT INTO gl.ledgers (partition_id, version, sequence, functional_currency)
VALUES (@partition_id, @version, @sequence, @functional_currency)
ON CONFLICT DO NOTHING;

-- name: LedgerCurrency :one
SELECT functional_currency
FROM gl.ledgers
WHERE partition_id = @partition_id AND version = @version AND sequence <= @known
ORDER BY sequence DESC
LIMIT 1;
