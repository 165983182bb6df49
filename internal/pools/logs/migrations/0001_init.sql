-- +goose Up
CREATE TABLE pool_logs (
    log_id    TEXT PRIMARY KEY,
    at        BIGINT NOT NULL,
    level     BIGINT NOT NULL,
    source    TEXT NOT NULL,
    message   TEXT NOT NULL,
    node_id   TEXT NOT NULL,
    device_id TEXT NOT NULL,
    slice_id  TEXT NOT NULL,
    user_id   TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    group_id  TEXT NOT NULL,
    details   TEXT NOT NULL,
    lowered   TEXT NOT NULL -- message and details in lower case, for searching
);
CREATE INDEX pool_logs_at ON pool_logs (at, log_id);
CREATE INDEX pool_logs_slice ON pool_logs (slice_id, at);
