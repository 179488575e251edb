-- +goose Up

CREATE SCHEMA IF NOT EXISTS skeleton;

-- One row an item. It keeps the places of both events in the log and their effective
-- dates, so that a report can be asked as of any of them.
CREATE TABLE skeleton.items (
    partition_id integer NOT NULL,
    version      integer NOT NULL,
    item_id      text COLLATE "C" NOT NULL,
    sequence     bigint NOT NULL,
    effective    date NOT NULL,
    code         text NOT NULL,
    quantity     bigint NOT NULL,
    removed_seq  bigint,
    removed_date date,
    CONSTRAINT items_pkey PRIMARY KEY (partition_id, version, item_id)
);

GRANT USAGE ON SCHEMA skeleton TO backbone_app, backbone_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON skeleton.items TO backbone_app;
GRANT SELECT ON skeleton.items TO backbone_reader;
