-- +goose Up
-- It wants shares of the accelerator pool, and is sent with passes to them.
ALTER TABLE attempts ADD COLUMN pooled BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX attempts_pooled ON attempts (attempt_id) WHERE pooled AND ended_at = 0 AND started_at = 0;
