-- +goose Up
-- Slices that one program has together: the ID of the first of them; '': it has one only.
ALTER TABLE pool_slices ADD COLUMN set_id TEXT NOT NULL DEFAULT '';
ALTER TABLE pool_slices ADD COLUMN across BOOLEAN NOT NULL DEFAULT FALSE; -- each on another node
CREATE INDEX pool_slices_set ON pool_slices (set_id) WHERE set_id <> '';
