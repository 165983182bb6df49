-- +goose Up
-- How fast a center's accelerators were measured to compute, in thousandths of the reference.
CREATE TABLE center_speeds (
    ai_center_id TEXT NOT NULL REFERENCES centers (ai_center_id),
    kind         TEXT NOT NULL,
    precision    TEXT NOT NULL,
    milli        BIGINT NOT NULL CHECK (milli > 0),
    PRIMARY KEY (ai_center_id, kind, precision)
);
