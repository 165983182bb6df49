-- +goose Up
-- What names the machine until it is started anew, as its kernel says (boot_id), and the
-- accelerator pool's node on it; '': not known. specs is JSON: whose runs it takes; []: all.
ALTER TABLE nodes ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN pool_node TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN specs TEXT NOT NULL DEFAULT '[]';
CREATE INDEX nodes_by_host ON nodes (host) WHERE host <> '';
CREATE INDEX nodes_by_pool_node ON nodes (pool_node) WHERE pool_node <> '';
