-- +goose Up

-- Revisions of purchase orders: on a date the newest one known counts.
CREATE TABLE ap.purchase_orders (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    effective_date date NOT NULL,
    revision       integer NOT NULL,
    event_id       uuid NOT NULL,
    po_reference   text COLLATE "C" NOT NULL,
    vendor_id      text COLLATE "C" NOT NULL,
    currency       text NOT NULL,
    status         text NOT NULL, -- open or closed
    CONSTRAINT purchase_orders_pkey PRIMARY KEY (partition_id, version, po_reference, sequence)
);

-- The lines of a revision, whose row has the same sequence. A line is named without its order.
CREATE TABLE ap.purchase_order_lines (
    sequence            bigint NOT NULL,
    partition_id        integer NOT NULL,
    version             integer NOT NULL,
    line_number         integer NOT NULL, -- in the order of the revision
    po_reference        text COLLATE "C" NOT NULL,
    line                text COLLATE "C" NOT NULL,
    item_id             text NOT NULL,
    quantity            numeric(25, 10) NOT NULL,
    unit_price          numeric(25, 10) NOT NULL, -- for price_base_quantity
    price_base_quantity numeric(25, 10) NOT NULL,
    account             text NOT NULL,
    CONSTRAINT purchase_order_lines_pkey PRIMARY KEY (partition_id, version, po_reference, sequence, line)
);

-- What changes the quantities of a line: what a goods receipt adds to the received ones, and what a
-- document adds to the billed ones. document_id and the vendor of the document are '' of a receipt.
CREATE TABLE ap.purchase_order_quantities (
    sequence       bigint NOT NULL,
    partition_id   integer NOT NULL,
    version        integer NOT NULL,
    effective_date date NOT NULL,
    position       integer NOT NULL, -- of the line in its event
    po_reference   text COLLATE "C" NOT NULL,
    line           text COLLATE "C" NOT NULL,
    vendor_id      text COLLATE "C" NOT NULL,
    document_id    text COLLATE "C" NOT NULL,
    received       numeric(25, 10) NOT NULL,
    billed         numeric(25, 10) NOT NULL,
    CONSTRAINT purchase_order_quantities_pkey PRIMARY KEY (partition_id, version, po_reference, sequence, position)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON ap.purchase_orders, ap.purchase_order_lines, ap.purchase_order_quantities TO backbone_app;
GRANT SELECT ON ap.purchase_orders, ap.purchase_order_lines, ap.purchase_order_quantities TO backbone_reader;
