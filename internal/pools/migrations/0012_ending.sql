-- +goose Up
ALTER TABLE pool_nodes ADD COLUMN ending BOOLEAN NOT NULL DEFAULT FALSE; -- it runs what has been taken back
