-- +goose Up
CREATE TABLE alarms (
    alarm_id        TEXT PRIMARY KEY,
    cause           TEXT NOT NULL, -- what it is about, as one word
    kind            BIGINT NOT NULL,
    severity        BIGINT NOT NULL,
    state           BIGINT NOT NULL,
    parent_id       TEXT NOT NULL,
    ai_center_id    TEXT NOT NULL,
    node            TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    allocation_id   TEXT NOT NULL,
    instance_id     TEXT NOT NULL,
    tenant_id       TEXT NOT NULL, -- '': a resource's
    message         TEXT NOT NULL,
    first_at        BIGINT NOT NULL,
    last_at         BIGINT NOT NULL,
    count           BIGINT NOT NULL,
    acknowledged_by TEXT NOT NULL,
    acknowledged_at BIGINT NOT NULL,
    note            TEXT NOT NULL,
    cleared_at      BIGINT NOT NULL
);
CREATE UNIQUE INDEX alarms_open ON alarms (cause) WHERE cleared_at = 0;
CREATE INDEX alarms_by_cause ON alarms (cause, cleared_at);
CREATE INDEX alarms_by_parent ON alarms (parent_id) WHERE parent_id <> '';
CREATE INDEX alarms_cleared ON alarms (cleared_at) WHERE cleared_at > 0;
