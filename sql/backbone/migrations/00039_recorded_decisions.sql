-- +goose Up

-- Decisions about messages of subscriptions are events of the administrative log. The rows of
-- earlier releases stay: nodes record their digest once, and write none.
REVOKE INSERT ON backbone.subscription_decisions FROM backbone_app;
