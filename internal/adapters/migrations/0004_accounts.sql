-- +goose Up
-- On which account of a center a tenant's runs there are booked. leaving: on
-- none any more, while the account is being removed.
CREATE TABLE accounts (
    ai_center_id TEXT NOT NULL,
    tenant_id    TEXT NOT NULL,
    name         TEXT NOT NULL,
    leaving      BOOLEAN NOT NULL,
    changed_at   BIGINT NOT NULL,
    PRIMARY KEY (ai_center_id, tenant_id)
);
