-- +goose Up
-- The project of the job, and when it was recorded; '' and 0 for what was
-- recorded before.
ALTER TABLE usage ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE usage ADD COLUMN recorded_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX usage_by_record ON usage (recorded_at);
