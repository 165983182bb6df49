-- +goose Up
-- Nodes of a center are measured by a schedule, several at once if it says so.
-- The runs it began are apart from those somebody asked for, of which a center
-- has one at a time; otherwise they are the same.
CREATE TABLE measurement_node_runs (
    run_id           TEXT PRIMARY KEY,
    ai_center_id     TEXT NOT NULL,
    schedule_node    TEXT NOT NULL,
    scope            BIGINT NOT NULL CHECK (scope BETWEEN 1 AND 2),
    node             TEXT NOT NULL,
    state            BIGINT NOT NULL CHECK (state BETWEEN 1 AND 5),
    message          TEXT NOT NULL,
    job_id           TEXT NOT NULL,
    resource_spec_id TEXT NOT NULL,
    image_id         TEXT NOT NULL,
    architecture     TEXT NOT NULL,
    requested_by     TEXT NOT NULL,
    request_id       TEXT NOT NULL, -- always ''
    created_at       BIGINT NOT NULL,
    ended_at         BIGINT NOT NULL,
    performance      BIGINT NOT NULL,
    decision         BIGINT NOT NULL CHECK (decision BETWEEN 0 AND 4),
    decided_by       TEXT NOT NULL,
    result           TEXT NOT NULL, -- JSON
    CHECK ((state <= 2) = (ended_at = 0))
);
-- One run of a node at a time.
CREATE UNIQUE INDEX measurement_node_runs_open ON measurement_node_runs (ai_center_id, schedule_node) WHERE state <= 2;
CREATE INDEX measurement_node_runs_node ON measurement_node_runs (ai_center_id, schedule_node, run_id);
CREATE TABLE measurement_schedules (
    ai_center_id   TEXT PRIMARY KEY,
    interval_hours BIGINT NOT NULL CHECK (interval_hours BETWEEN 0 AND 8760), -- 0: off
    at_once        BIGINT NOT NULL CHECK (at_once BETWEEN 1 AND 16),
    version        BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    updated_by     TEXT NOT NULL,
    message        TEXT NOT NULL
);
-- What the schedules know of a node; the node '' is the whole center, of which
-- only retry_at and message are used.
CREATE TABLE measurement_nodes (
    ai_center_id TEXT NOT NULL,
    node         TEXT NOT NULL,
    measured_at  BIGINT NOT NULL, -- 0: never
    performance  BIGINT NOT NULL,
    run_id       TEXT NOT NULL,
    failures     BIGINT NOT NULL,
    retry_at     BIGINT NOT NULL, -- 0: the last run was well
    message      TEXT NOT NULL,
    PRIMARY KEY (ai_center_id, node)
);
