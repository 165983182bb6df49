-- +goose Up
-- The run of a job that has a slice, and what of it is metered; '': it is no job's.
ALTER TABLE pool_slices ADD COLUMN run_id TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN job_id TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN task_name TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN task_index BIGINT NOT NULL DEFAULT 0;
ALTER TABLE pool_slices ADD COLUMN replica_index BIGINT NOT NULL DEFAULT 0;
ALTER TABLE pool_slices ADD COLUMN run_number BIGINT NOT NULL DEFAULT 0;
CREATE INDEX pool_slices_run ON pool_slices (run_id) WHERE run_id <> '';
