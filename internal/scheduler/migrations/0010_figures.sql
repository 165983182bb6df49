-- +goose Up
-- What was scheduled, by ten seconds; what is older than a day is in bucket 0,
-- whose row also says when counting began.
CREATE TABLE scheduling_figures (
    bucket   BIGINT PRIMARY KEY, -- its start, microseconds
    began_at BIGINT NOT NULL,    -- of bucket 0; 0 in the others
    jobs     BIGINT NOT NULL,    -- whose scheduling completed
    replicas BIGINT NOT NULL,    -- placed
    busy_us  BIGINT NOT NULL     -- time of cycles that placed something
);
