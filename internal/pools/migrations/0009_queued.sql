-- +goose Up
-- Since when a slice waits, or waited last: later than its request if it had a place
-- whose node is gone; 0: since its request.
ALTER TABLE pool_slices ADD COLUMN queued_at BIGINT NOT NULL DEFAULT 0;
