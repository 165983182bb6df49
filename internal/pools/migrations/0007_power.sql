-- +goose Up
-- What a device shall draw at most, in watts; 0: the platform does not say, -1: as its maker set it.
ALTER TABLE pool_devices ADD COLUMN power_limit BIGINT NOT NULL DEFAULT 0;
