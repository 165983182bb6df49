-- +goose Up
CREATE TABLE pool_releases (
    sha256      TEXT PRIMARY KEY,
    version     TEXT NOT NULL,
    bytes       BIGINT NOT NULL,
    uploaded_at BIGINT NOT NULL
);

CREATE TABLE pool_upgrades (
    upgrade_id TEXT PRIMARY KEY,
    sha256     TEXT NOT NULL,
    version    TEXT NOT NULL,
    bytes      BIGINT NOT NULL,
    running    BOOLEAN NOT NULL, -- it is not over
    state      BIGINT NOT NULL,
    batch      BIGINT NOT NULL,
    gray       BOOLEAN NOT NULL,
    pause_s    BIGINT NOT NULL,
    patience_s BIGINT NOT NULL,
    keep       BOOLEAN NOT NULL,
    reason     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL
);
CREATE UNIQUE INDEX pool_upgrades_one ON pool_upgrades (running) WHERE running;

CREATE TABLE pool_upgrade_nodes (
    upgrade_id   TEXT NOT NULL,
    position     BIGINT NOT NULL,
    node_id      TEXT NOT NULL, -- empty: the platform
    state        BIGINT NOT NULL,
    from_sha256  TEXT NOT NULL,
    from_version TEXT NOT NULL,
    attempt      BIGINT NOT NULL,
    reason       TEXT NOT NULL,
    began_at     BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL,
    PRIMARY KEY (upgrade_id, position)
);

-- What nodes run, and should.
CREATE TABLE pool_programs (
    node_id TEXT PRIMARY KEY,
    program TEXT NOT NULL, -- SHA-256, as told
    begun   BIGINT NOT NULL, -- attempt, as told
    problem TEXT NOT NULL, -- of that
    wanted  TEXT NOT NULL, -- SHA-256; empty: what it runs
    bytes   BIGINT NOT NULL, -- of that; 0: the node has it
    version TEXT NOT NULL,
    attempt BIGINT NOT NULL
);
