-- +goose Up

-- Where webhooks may send follows from the administrative log of the tenant. Nodes read the
-- rows of earlier releases once, to adopt them into the log, and write none.
REVOKE INSERT, DELETE ON backbone.webhook_hosts FROM backbone_app;

-- Verification compares endpoints with the log.
GRANT SELECT ON backbone.webhook_endpoints TO backbone_reader;
