-- +goose Up
CREATE TABLE pool_node_tokens (
    token_hash TEXT PRIMARY KEY,
    expires_at BIGINT NOT NULL,
    used_by    TEXT NOT NULL -- node and hash of its secret; '': nobody
);

CREATE TABLE pool_nodes (
    node_id   TEXT PRIMARY KEY,
    secret    TEXT NOT NULL, -- sealed
    mode      BIGINT NOT NULL,
    online    BOOLEAN NOT NULL,
    host      TEXT NOT NULL,
    version   TEXT NOT NULL,
    addresses TEXT NOT NULL, -- JSON
    joined_at BIGINT NOT NULL
);

-- What changes with every report, apart from what placing reads.
CREATE TABLE pool_beats (
    node_id  TEXT PRIMARY KEY,
    boot     TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    epoch    BIGINT NOT NULL,
    seen_at  BIGINT NOT NULL,
    gone_at  BIGINT NOT NULL, -- its report ended without an answer; 0: it did not
    tasks    TEXT NOT NULL    -- JSON: what runs there, as reported
);

CREATE TABLE pool_devices (
    node_id       TEXT NOT NULL,
    device_id     TEXT NOT NULL,
    model         TEXT NOT NULL,
    vendor        TEXT NOT NULL,
    driver        TEXT NOT NULL,
    type          TEXT NOT NULL,
    compute_units BIGINT NOT NULL,
    memory_mib    BIGINT NOT NULL,
    present       BOOLEAN NOT NULL,
    disabled      BOOLEAN NOT NULL,
    compute_limit BIGINT NOT NULL,
    memory_limit  BIGINT NOT NULL,
    compute_lent  BIGINT NOT NULL,
    memory_lent   BIGINT NOT NULL,
    slices        BIGINT NOT NULL CHECK (slices >= 0),
    PRIMARY KEY (node_id, device_id),
    -- Whoever lends, nothing is lent twice.
    CHECK (compute_lent >= 0 AND compute_lent <= compute_limit),
    CHECK (memory_lent >= 0 AND memory_lent <= memory_limit)
);

CREATE TABLE pool_specs (
    spec_id    TEXT PRIMARY KEY,
    compute    BIGINT NOT NULL,
    memory_mib BIGINT NOT NULL,
    weighted   BOOLEAN NOT NULL,
    model      TEXT NOT NULL,
    price_fen  BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE pool_groups (
    group_id      TEXT PRIMARY KEY,
    tenants       TEXT NOT NULL, -- JSON
    users         TEXT NOT NULL, -- JSON
    members       TEXT NOT NULL, -- JSON
    compute_limit BIGINT NOT NULL,
    memory_limit  BIGINT NOT NULL,
    max_priority  BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL
);

CREATE TABLE pool_policy (
    only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
    local    BIGINT NOT NULL,
    nodes    BIGINT NOT NULL,
    devices  BIGINT NOT NULL
);

CREATE TABLE pool_slices (
    slice_id     TEXT PRIMARY KEY,
    request_key  TEXT NOT NULL UNIQUE, -- user and request ID, or the slice's own ID
    group_id     TEXT NOT NULL,
    tenant_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    user_name    TEXT NOT NULL,
    name         TEXT NOT NULL,
    spec_id      TEXT NOT NULL,
    compute      BIGINT NOT NULL,
    memory_mib   BIGINT NOT NULL,
    weighted     BOOLEAN NOT NULL,
    model        TEXT NOT NULL,
    want_node    TEXT NOT NULL,
    want_device  TEXT NOT NULL,
    host         TEXT NOT NULL,
    local        BIGINT NOT NULL, -- 0: as the pool's policy says
    nodes        BIGINT NOT NULL,
    devices      BIGINT NOT NULL,
    fixed        BOOLEAN NOT NULL,
    priority     BIGINT NOT NULL,
    idle_s       BIGINT NOT NULL,
    limit_s      BIGINT NOT NULL,
    price_fen    BIGINT NOT NULL,
    state        BIGINT NOT NULL,
    node_id      TEXT NOT NULL,
    device_id    TEXT NOT NULL,
    reason       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    polled_at    BIGINT NOT NULL, -- when somebody last awaited it
    assigned_at  BIGINT NOT NULL,
    started_at   BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL,
    metered_at   BIGINT NOT NULL, -- until when its use is recorded
    device_us    BIGINT NOT NULL,
    CHECK (state < 2 OR state > 3 OR node_id <> '')
);
CREATE INDEX pool_slices_live ON pool_slices (state) WHERE state < 4;
CREATE INDEX pool_slices_tenant ON pool_slices (tenant_id, slice_id);
