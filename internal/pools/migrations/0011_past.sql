-- +goose Up
ALTER TABLE pool_beats ADD COLUMN before TEXT NOT NULL DEFAULT ''; -- the start of the node before this one
ALTER TABLE pool_beats ADD COLUMN ended TEXT NOT NULL DEFAULT '[]'; -- what its last report said of tasks that ended
-- What a slice's earlier programs did, which those of held slices come after each other.
ALTER TABLE pool_slices ADD COLUMN past_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE pool_slices ADD COLUMN past_mj BIGINT NOT NULL DEFAULT 0;
UPDATE pool_slices SET past_us = device_us, past_mj = energy_mj WHERE state <> 3;
