-- +goose Up
-- Held time: of which allocation, and packages times microseconds; '' and 0 for
-- runs.
ALTER TABLE usage ADD COLUMN allocation_id TEXT NOT NULL DEFAULT '';
ALTER TABLE usage ADD COLUMN package_us BIGINT NOT NULL DEFAULT 0 CHECK (package_us >= 0);
CREATE INDEX usage_by_allocation ON usage (allocation_id, ended_at, attempt_id) WHERE allocation_id <> '';
