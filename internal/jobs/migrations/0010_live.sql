-- +goose Up
-- Not placed before then, microseconds: the pause before another run.
ALTER TABLE jobs ADD COLUMN not_before BIGINT NOT NULL DEFAULT 0;
-- Indices of tasks that never run, because those they wait for cannot come so
-- far any more; space separated.
ALTER TABLE jobs ADD COLUMN skipped TEXT NOT NULL DEFAULT '';
-- As what it is taken away ('preempted', 'restarted', 'scaled_in'); '': as
-- reclaimed, if it is taken away at all.
ALTER TABLE attempts ADD COLUMN taken_as TEXT NOT NULL DEFAULT '';
-- How many earlier runs of the replica used up no retry.
ALTER TABLE attempts ADD COLUMN spared BIGINT NOT NULL DEFAULT 0;
