-- +goose Up
-- The optional calls a center answers, by name, separated by spaces.
ALTER TABLE gateways ADD COLUMN features TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN features TEXT NOT NULL DEFAULT '';
