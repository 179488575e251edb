-- +goose Up

-- The records that hold values sealed with a key of a person, so that an erasure finds
-- them. One row per record, subject and key class, written in the transaction of the
-- record. Subjects are pseudonyms (type:id); the paths are pointers into the stored
-- document. The tables have no foreign keys, because they are hot.
CREATE TABLE backbone.event_pii_subjects (
    sequence     bigint NOT NULL,
    partition_id integer NOT NULL,
    class        smallint NOT NULL, -- number of the key class
    subject_id   text COLLATE "C" NOT NULL CHECK (octet_length(subject_id) BETWEEN 1 AND 128),
    paths        text[] NOT NULL,
    CONSTRAINT event_pii_subjects_pkey PRIMARY KEY (partition_id, subject_id, sequence, class)
);

CREATE TABLE backbone.intent_pii_subjects (
    partition_id integer NOT NULL,
    class        smallint NOT NULL,
    intent_id    uuid NOT NULL,
    subject_id   text COLLATE "C" NOT NULL CHECK (octet_length(subject_id) BETWEEN 1 AND 128),
    paths        text[] NOT NULL,
    CONSTRAINT intent_pii_subjects_pkey PRIMARY KEY (partition_id, subject_id, intent_id, class)
);

GRANT SELECT, INSERT ON backbone.event_pii_subjects, backbone.intent_pii_subjects TO backbone_app;
GRANT SELECT ON backbone.event_pii_subjects, backbone.intent_pii_subjects TO backbone_reader, backbone_eraser;
