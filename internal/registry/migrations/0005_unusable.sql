-- +goose Up
-- Who is placed on asks for those that are out of use, which are few.
CREATE INDEX centers_drained ON centers (ai_center_id) WHERE drained;
CREATE INDEX center_monitor_down ON center_monitor (ai_center_id) WHERE down;
