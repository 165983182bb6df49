-- +goose Up
-- released: it is over, and its allocations are released; until then the loop
-- releases them.
ALTER TABLE reservation_times ADD COLUMN released BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX reservation_times_over ON reservation_times (reservation_id, number) WHERE ended_at > 0 AND NOT released;
