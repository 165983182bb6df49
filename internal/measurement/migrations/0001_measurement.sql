-- +goose Up
-- scope, state and decision are the numbers of the API.
CREATE TABLE measurement_runs (
    run_id           TEXT PRIMARY KEY,
    ai_center_id     TEXT NOT NULL,
    scope            BIGINT NOT NULL CHECK (scope BETWEEN 1 AND 2),
    node             TEXT NOT NULL,
    state            BIGINT NOT NULL CHECK (state BETWEEN 1 AND 5),
    message          TEXT NOT NULL,
    job_id           TEXT NOT NULL,
    resource_spec_id TEXT NOT NULL,
    image_id         TEXT NOT NULL,
    architecture     TEXT NOT NULL,
    requested_by     TEXT NOT NULL,
    request_id       TEXT NOT NULL,
    created_at       BIGINT NOT NULL,
    ended_at         BIGINT NOT NULL,
    performance      BIGINT NOT NULL,
    decision         BIGINT NOT NULL CHECK (decision BETWEEN 0 AND 4),
    decided_by       TEXT NOT NULL,
    result           TEXT NOT NULL, -- JSON
    CHECK ((state <= 2) = (ended_at = 0))
);
-- One run of a center at a time.
CREATE UNIQUE INDEX measurement_runs_open ON measurement_runs (ai_center_id) WHERE state <= 2;
CREATE UNIQUE INDEX measurement_runs_request ON measurement_runs (request_id) WHERE request_id <> '';
CREATE INDEX measurement_runs_center ON measurement_runs (ai_center_id, run_id);
CREATE TABLE measurement_settings (
    id         BIGINT PRIMARY KEY CHECK (id = 1),
    policy     BIGINT NOT NULL CHECK (policy BETWEEN 1 AND 2),
    on_join    BOOLEAN NOT NULL,
    every_days BIGINT NOT NULL CHECK (every_days BETWEEN 0 AND 365),
    weights    TEXT NOT NULL, -- JSON; empty: those of package score
    version    BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
INSERT INTO measurement_settings (id, policy, on_join, every_days, weights, version, updated_at) VALUES (1, 1, FALSE, 0, '', 1, 0);
