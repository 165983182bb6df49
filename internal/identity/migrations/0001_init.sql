-- +goose Up
CREATE TABLE tenants (
    tenant_id  TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE users (
    user_id    TEXT PRIMARY KEY,
    tenant_id  TEXT NOT NULL REFERENCES tenants (tenant_id),
    name       TEXT NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('admin', 'operator', 'user', 'auditor')),
    created_at BIGINT NOT NULL
);
CREATE INDEX users_by_tenant ON users (tenant_id, user_id);
CREATE TABLE api_keys (
    key_id     TEXT PRIMARY KEY,
    user_id    TEXT NOT NULL REFERENCES users (user_id),
    note       TEXT NOT NULL,
    hash       BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);
CREATE INDEX api_keys_by_user ON api_keys (user_id, key_id);
CREATE TABLE audit_events (
    event_id  TEXT PRIMARY KEY,
    at        BIGINT NOT NULL,
    tenant_id TEXT NOT NULL,
    user_id   TEXT NOT NULL,
    key_id    TEXT NOT NULL,
    method    TEXT NOT NULL,
    subject   TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    remote    TEXT NOT NULL
);
CREATE INDEX audit_events_by_user ON audit_events (user_id, event_id);
CREATE INDEX audit_events_by_method ON audit_events (method, event_id);
