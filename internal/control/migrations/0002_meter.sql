-- +goose Up
-- The held time of an allocation that is not recorded yet: since from_at it has
-- come to package_us, up to at; from then on unused packages count.
CREATE TABLE allocation_meters (
    allocation_id TEXT PRIMARY KEY REFERENCES allocations (allocation_id),
    spec_id       TEXT NOT NULL,   -- whose packages are counted
    price         BIGINT NOT NULL, -- fen per package and hour, fixed when it was granted
    unused        BIGINT NOT NULL,
    from_at       BIGINT NOT NULL,
    at            BIGINT NOT NULL,
    package_us    BIGINT NOT NULL
);
CREATE INDEX allocation_meters_by_time ON allocation_meters (from_at);
