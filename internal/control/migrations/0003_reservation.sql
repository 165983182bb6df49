-- +goose Up
-- The reservation it was made for; '': none.
ALTER TABLE allocations ADD COLUMN reservation_id TEXT NOT NULL DEFAULT '';
