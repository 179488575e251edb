-- +goose Up

-- Why an event was recorded. Events from before have none, so no row is rewritten.
ALTER TABLE backbone.events ADD COLUMN reason_code text;
