-- +goose Up

-- Who may call follows from the administrative log of the tenant. Nodes read the rows of
-- earlier releases once, to adopt them into the log, and write none.
REVOKE INSERT, UPDATE ON backbone.principals FROM backbone_app;
