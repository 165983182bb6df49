-- +goose Up
-- By what programs use a device (opencl, cuda), and where it is: two of one place that
-- differ in that are one card.
ALTER TABLE pool_devices ADD COLUMN api TEXT NOT NULL DEFAULT 'opencl';
ALTER TABLE pool_devices ADD COLUMN bus TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN api TEXT NOT NULL DEFAULT 'opencl';
