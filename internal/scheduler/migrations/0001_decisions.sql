-- +goose Up
CREATE TABLE decisions (
    decision_id TEXT PRIMARY KEY,
    job_id      TEXT NOT NULL,
    at          BIGINT NOT NULL,
    body        BYTEA NOT NULL -- place.Decision, JSON, zstd
);
CREATE INDEX decisions_by_job ON decisions (job_id);

CREATE TABLE policy_set (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    preset     TEXT NOT NULL,
    weights    TEXT NOT NULL, -- JSON, by policy ID
    updated_at BIGINT NOT NULL
);
