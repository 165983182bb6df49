-- +goose Up
CREATE TABLE usage (
    attempt_id       TEXT PRIMARY KEY,
    job_id           TEXT NOT NULL,
    tenant_id        TEXT NOT NULL,
    user_name        TEXT NOT NULL,
    task_name        TEXT NOT NULL,
    task_index       BIGINT NOT NULL CHECK (task_index >= 0),
    replica_index    BIGINT NOT NULL CHECK (replica_index >= 0),
    attempt          BIGINT NOT NULL CHECK (attempt >= 0),
    ai_center_id     TEXT NOT NULL,
    resource_spec_id TEXT NOT NULL,
    started_at       BIGINT NOT NULL CHECK (started_at > 0),
    ended_at         BIGINT NOT NULL CHECK (ended_at >= started_at),
    cpu_micros       BIGINT NOT NULL CHECK (cpu_micros >= 0),
    memory_peak      BIGINT NOT NULL CHECK (memory_peak >= 0),
    price            BIGINT NOT NULL CHECK (price >= 0),
    cost_micros      BIGINT NOT NULL CHECK (cost_micros >= 0)
);
CREATE INDEX usage_by_end ON usage (ended_at, attempt_id);
CREATE INDEX usage_by_tenant ON usage (tenant_id, ended_at, attempt_id);
CREATE INDEX usage_by_center ON usage (ai_center_id, ended_at, attempt_id);
CREATE INDEX usage_by_job ON usage (job_id, ended_at, attempt_id);
