-- +goose Up
-- The groups of jobs, by which placement rules count replicas.
CREATE TABLE job_groups (
    tenant_id TEXT NOT NULL,
    name      TEXT NOT NULL,
    job_id    TEXT NOT NULL,
    PRIMARY KEY (tenant_id, name, job_id)
);
CREATE INDEX job_groups_by_job ON job_groups (job_id);
