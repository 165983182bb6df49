-- +goose Up
-- Among slices of the same priority those of jobs with a higher one go first.
ALTER TABLE pool_slices ADD COLUMN job_priority BIGINT NOT NULL DEFAULT 0;
CREATE INDEX pool_slices_line ON pool_slices (priority DESC, job_priority DESC, created_at, slice_id) WHERE state = 1;
