-- +goose Up
ALTER TABLE pool_beats ADD COLUMN figures TEXT NOT NULL DEFAULT '[]'; -- JSON: what devices and cards do, as reported
ALTER TABLE pool_slices ADD COLUMN energy_mj BIGINT NOT NULL DEFAULT 0;
