-- +goose Up

-- The grant by which an auditor read; NULL for other reads and for those before this column.
ALTER TABLE backbone.access_log ADD COLUMN grant_id uuid;
GRANT INSERT (grant_id) ON backbone.access_log TO backbone_app;
