-- +goose Up
-- The latest end of a replica so far; a job that ends has ended then.
ALTER TABLE jobs ADD COLUMN last_end BIGINT NOT NULL DEFAULT 0;
UPDATE jobs SET last_end = COALESCE((SELECT MAX(a.ended_at) FROM attempts a WHERE a.job_id = jobs.job_id), 0)
    WHERE ended_at = 0;

-- Written off, and its center has not said since that it is over there too.
ALTER TABLE attempts ADD COLUMN lost BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX attempts_lost ON attempts (ai_center_id) WHERE lost;
