-- +goose Up
-- Slices that replicas asked for which wait to be placed: run_id is the replica's name.
ALTER TABLE pool_slices ADD COLUMN wished BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX pool_slices_wished ON pool_slices (state) WHERE wished AND state IN (1, 2);
