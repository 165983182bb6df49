-- +goose Up
-- The gateway's machine, as the pool node there names it; '': its runs use none there.
ALTER TABLE gateways ADD COLUMN pool_host TEXT NOT NULL DEFAULT '';
