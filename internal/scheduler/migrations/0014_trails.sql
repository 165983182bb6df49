-- +goose Up
-- The decisions of a cycle. Those stored before have their own body and no trail.
CREATE TABLE decision_trails (
    trail_id  TEXT PRIMARY KEY,
    decisions BIGINT NOT NULL, -- rows of decisions that are in it
    body      BYTEA NOT NULL   -- JSON, zstd
);
ALTER TABLE decisions ADD COLUMN trail_id TEXT NOT NULL DEFAULT '';
ALTER TABLE decisions ADD COLUMN place BIGINT NOT NULL DEFAULT 0; -- in the trail, from 0
