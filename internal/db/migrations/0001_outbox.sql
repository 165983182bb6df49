-- +goose Up
CREATE TABLE outbox (
    event_id TEXT PRIMARY KEY,
    subject  TEXT NOT NULL,
    payload  BYTEA NOT NULL,
    at       BIGINT NOT NULL
);
