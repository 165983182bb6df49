-- +goose Up
-- Where a run is, as its center says.
ALTER TABLE attempts ADD COLUMN node TEXT NOT NULL DEFAULT '';
-- Why it is taken away from where it runs; '': it is not.
ALTER TABLE attempts ADD COLUMN taken TEXT NOT NULL DEFAULT '';
-- The allocation it draws on, and whether it is kept to that one's nodes.
ALTER TABLE attempts ADD COLUMN allocation_id TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN on_nodes BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX attempts_by_allocation ON attempts (allocation_id) WHERE ended_at = 0 AND allocation_id <> '';
-- For alarms: what centers refused lately.
CREATE INDEX attempts_refused ON attempts (ended_at) WHERE reason = 'refused';
