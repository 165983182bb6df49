-- +goose Up
-- The pool nodes on the gateway's machine that its runs may use there, separated by spaces.
ALTER TABLE gateways ADD COLUMN pool_nodes TEXT NOT NULL DEFAULT '';
