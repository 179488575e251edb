-- +goose Up

-- The date of the paper that a journal books, where its event has one. Events of earlier
-- releases have none, so their rows need no rebuild.
ALTER TABLE gl.journals
    ADD COLUMN document_date date;
