-- +goose Up
CREATE TABLE plugins (
    name          TEXT PRIMARY KEY,
    source        BIGINT NOT NULL,
    endpoints     TEXT NOT NULL,
    version       TEXT NOT NULL,
    parts         TEXT NOT NULL,
    config_schema TEXT NOT NULL,
    restarts      BIGINT NOT NULL,
    created_at    BIGINT NOT NULL
);

CREATE TABLE instances (
    instance_id  TEXT PRIMARY KEY,
    plugin       TEXT NOT NULL,
    ai_center_id TEXT NOT NULL,
    endpoint     TEXT NOT NULL,
    made         BOOLEAN NOT NULL,
    config       BYTEA,
    enabled      BOOLEAN NOT NULL,
    generation   BIGINT NOT NULL,
    state        TEXT NOT NULL,
    message      TEXT NOT NULL,
    version      TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL
);
