-- +goose Up
-- JSON: the names of the nodes that it is of; []: the whole center.
ALTER TABLE maintenance ADD COLUMN nodes TEXT NOT NULL DEFAULT '[]';
