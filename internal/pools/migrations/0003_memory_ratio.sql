-- +goose Up
-- What slices may have of a device's memory together, as percent of it.
ALTER TABLE pool_devices ADD COLUMN memory_ratio BIGINT NOT NULL DEFAULT 100;
