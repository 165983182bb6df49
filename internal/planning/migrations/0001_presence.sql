-- +goose Up
-- A span of time in which a process with a role gave signs of life: from its
-- start, or its return after silence, to its last sign. ended: it stopped in
-- order, which is no failure.
CREATE TABLE presence (
    role        TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    since       BIGINT NOT NULL,
    seen        BIGINT NOT NULL,
    ended       BOOLEAN NOT NULL,
    PRIMARY KEY (role, instance_id, since),
    CHECK (since <= seen)
);
CREATE INDEX presence_seen ON presence (seen);
