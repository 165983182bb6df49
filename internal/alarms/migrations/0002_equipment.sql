-- +goose Up
ALTER TABLE alarms ADD COLUMN equipment TEXT NOT NULL DEFAULT '';
