-- +goose Up
-- Slices that ended and that nobody counted yet. The time at which they ended does not
-- tell which these are: what commits late may have ended before it was counted last.
CREATE TABLE pool_ended (
    slice_id TEXT PRIMARY KEY
);
