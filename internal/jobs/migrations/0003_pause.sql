-- +goose Up
-- A paused job stands still: the wish, and how many of its replicas do.
ALTER TABLE jobs ADD COLUMN pause_asked BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE jobs ADD COLUMN paused BIGINT NOT NULL DEFAULT 0 CHECK (paused >= 0);

-- It shall stand still; it does in state 6 (yunhe.jobs.v1.STATE_PAUSED).
ALTER TABLE attempts ADD COLUMN pause_asked BOOLEAN NOT NULL DEFAULT FALSE;
