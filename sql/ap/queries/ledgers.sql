-- name: LedgerInsert :exec
INSERT INTO ap.ledgers (partition_id, version, sequence, functional_currency)
VALUES (@partition_id, @version, @sequence, @functional_currency)
ON CONFLICT DO NOTHING;

-- name: LedgerCurrency :one
SELECT functional_currency
FROM ap.ledgers
WHERE partition_id = @partition_id AND version = @version AND sequence <= @known
ORDER BY sequence DESC
LIMIT 1;
