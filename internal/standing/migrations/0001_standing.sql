-- +goose Up
-- Centers that were not heard of, at least once. silent_us is for how long the
-- platform has listened in vain, watched_us for how long it has looked without
-- a gap; both in microseconds.
CREATE TABLE center_links (
    ai_center_id TEXT PRIMARY KEY,
    state        BIGINT NOT NULL,
    since        BIGINT NOT NULL,
    silent_us    BIGINT NOT NULL,
    watched_us   BIGINT NOT NULL,
    looked_at    BIGINT NOT NULL,
    silences     BIGINT NOT NULL,
    losses       BIGINT NOT NULL
);
-- scope is 'platform' (then id is ''), 'center' or 'tenant'; seconds -1: never.
CREATE TABLE lost_graces (
    scope      TEXT NOT NULL,
    id         TEXT NOT NULL,
    seconds    BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (scope, id)
);
-- What centers did not take lately. level says how long they are left alone.
CREATE TABLE center_refusals (
    ai_center_id TEXT NOT NULL,
    spec_id      TEXT NOT NULL,
    image_id     TEXT NOT NULL,
    reason       TEXT NOT NULL,
    level        BIGINT NOT NULL,
    count        BIGINT NOT NULL,
    first_at     BIGINT NOT NULL,
    last_at      BIGINT NOT NULL,
    until        BIGINT NOT NULL,
    PRIMARY KEY (ai_center_id, spec_id, image_id)
);
