-- The sealed bytes of papers.

-- name: InsertPaper :exec
INSERT INTO backbone.paper_contents (partition_id, sha256, paper_id, sealed)
VALUES (@partition_id, @sha256, @paper_id, @sealed)
ON CONFLICT DO NOTHING;

-- name: GetPaper :one
SELECT c.paper_id, c.sealed FROM backbone.paper_contents c WHERE c.partition_id = @partition_id AND c.sha256 = @sha256;

-- name: ListPapers :many
SELECT c.sha256, c.paper_id, c.sealed FROM backbone.paper_contents c WHERE c.partition_id = @partition_id;

-- name: SweepPapers :one
SELECT backbone.sweep_papers(@before_at)::bigint;
