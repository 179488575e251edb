-- name: DocumentHoldInsert :exec
INSERT INTO ap.document_holds (partition_id, version, sequence, effective_date, released, document_id, hold_id, kind, blocks)
VALUES (@partition_id, @version, @sequence, @effective_date, @released, @document_id, @hold_id, @kind, @blocks)
ON CONFLICT DO NOTHING;
