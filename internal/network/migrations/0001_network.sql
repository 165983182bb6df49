-- +goose Up
-- What was declared of paths; -1: not stated.
CREATE TABLE network_paths (
    from_end        TEXT NOT NULL,
    to_end          TEXT NOT NULL,
    latency_us      BIGINT NOT NULL CHECK (latency_us >= -1),
    jitter_us       BIGINT NOT NULL CHECK (jitter_us >= -1),
    loss_ppm        BIGINT NOT NULL CHECK (loss_ppm BETWEEN -1 AND 1000000),
    bandwidth_kbps  BIGINT NOT NULL CHECK (bandwidth_kbps >= -1),
    fee_fen_per_gib BIGINT NOT NULL CHECK (fee_fen_per_gib >= -1),
    note            TEXT NOT NULL,
    PRIMARY KEY (from_end, to_end)
);
CREATE INDEX network_paths_to ON network_paths (to_end);
-- Places users are at. located: longitude and latitude are known.
CREATE TABLE network_origins (
    origin_id  TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    region     TEXT NOT NULL,
    located    BOOLEAN NOT NULL,
    longitude  BIGINT NOT NULL,
    latitude   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
-- Whose jobs come from an origin. kind: 'tenant' or 'user'.
CREATE TABLE network_origin_members (
    kind      TEXT NOT NULL CHECK (kind IN ('tenant', 'user')),
    member_id TEXT NOT NULL,
    origin_id TEXT NOT NULL,
    PRIMARY KEY (kind, member_id)
);
CREATE INDEX network_origin_members_by_origin ON network_origin_members (origin_id);
-- Counts the changes of the tables above.
CREATE TABLE network_generation (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    n   BIGINT NOT NULL
);
INSERT INTO network_generation (one, n) VALUES (1, 0);
