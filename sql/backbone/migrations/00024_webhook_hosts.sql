-- +goose Up

-- The hosts that the webhooks of a tenant may send to. A tenant without rows sends nowhere.
-- host is as in an address, in small letters, with the port unless it is the scheme's own.
CREATE TABLE backbone.webhook_hosts (
    tenant_id text COLLATE "C" NOT NULL,
    host      text COLLATE "C" NOT NULL CHECK (octet_length(host) BETWEEN 1 AND 300),
    added_by  text NOT NULL, -- person id
    added_at  timestamptz NOT NULL,
    CONSTRAINT webhook_hosts_pkey PRIMARY KEY (tenant_id, host)
);

GRANT SELECT, INSERT, DELETE ON backbone.webhook_hosts TO backbone_app;

-- Why the endpoint gets personal values in clear; NULL: it gets them masked.
ALTER TABLE backbone.webhook_endpoints
    ADD COLUMN personal_reason text CHECK (octet_length(personal_reason) BETWEEN 1 AND 500);
