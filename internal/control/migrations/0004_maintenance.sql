-- +goose Up
-- The maintenance that the node is out of use for; '': none.
ALTER TABLE node_controls ADD COLUMN maintenance_id TEXT NOT NULL DEFAULT '';
CREATE INDEX node_controls_by_maintenance ON node_controls (ai_center_id, node) WHERE maintenance_id <> '';
