-- +goose Up

-- The endpoints to which events of subscriptions are sent. They belong to tenants and are
-- shared by all partitions, like subscriptions. No secret is stored: it is derived from a
-- secret of the tenant that the key store keeps wrapped.
CREATE TABLE backbone.webhook_endpoints (
    subscription   uuid NOT NULL, -- uid
    tenant_id      text COLLATE "C" NOT NULL,
    url            text NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2000),
    secret_number  integer NOT NULL CHECK (secret_number > 0),
    previous_until timestamptz, -- until when the previous secret signs too
    disabled_at    timestamptz,
    disabled_code  text,
    revision       bigint NOT NULL CHECK (revision > 0),
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (subscription)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON backbone.webhook_endpoints TO backbone_app;
