-- +goose Up
CREATE TABLE gateways (
    ai_center_id TEXT PRIMARY KEY,
    public_key   TEXT NOT NULL,
    version      TEXT NOT NULL,
    joined_at    BIGINT NOT NULL,
    removed      BOOLEAN NOT NULL
);

CREATE TABLE join_tokens (
    token_hash   TEXT PRIMARY KEY,
    ai_center_id TEXT NOT NULL,
    expires_at   BIGINT NOT NULL,
    used_by      TEXT NOT NULL
);
