-- +goose Up
ALTER TABLE pool_devices ADD COLUMN physical BOOLEAN NOT NULL DEFAULT FALSE; -- lent whole

ALTER TABLE pool_slices ADD COLUMN physical BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE pool_slices ADD COLUMN affinity TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN anti_affinity TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN move_id TEXT NOT NULL DEFAULT '';    -- '': it does not move
ALTER TABLE pool_slices ADD COLUMN to_node TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN to_device TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN left_at BIGINT NOT NULL DEFAULT 0;   -- when its node said that it has gone there
ALTER TABLE pool_slices ADD COLUMN move_error TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN pause_us BIGINT NOT NULL DEFAULT 0;
