-- +goose Up
CREATE TABLE simulations (
    simulation_id TEXT PRIMARY KEY,
    tenant_id     TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    request_id    TEXT NOT NULL,
    digest        TEXT NOT NULL,
    state         BIGINT NOT NULL,
    cancel_asked  BOOLEAN NOT NULL,
    message       TEXT NOT NULL,
    spec          TEXT NOT NULL,
    places        BIGINT NOT NULL,
    jobs          BIGINT NOT NULL,
    progress      BIGINT NOT NULL CHECK (progress BETWEEN 0 AND 1000),
    measures      TEXT NOT NULL,
    runs          BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    started_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL,
    version       BIGINT NOT NULL
);
CREATE UNIQUE INDEX simulations_by_request ON simulations (tenant_id, request_id) WHERE request_id <> '';
CREATE INDEX simulations_open ON simulations (simulation_id) WHERE state IN (1, 2);
CREATE INDEX simulations_by_tenant ON simulations (tenant_id, simulation_id);
