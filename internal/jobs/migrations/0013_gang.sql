-- +goose Up
-- By which the other members of its gang reach it, as it says itself.
ALTER TABLE attempts ADD COLUMN address TEXT NOT NULL DEFAULT '';
