-- +goose Up
-- What was asked through I2. steps is JSON. request_id and digest make a
-- request safe to repeat; phase, stop_at and then_free belong to a reclaim.
CREATE TABLE operations (
    operation_id  TEXT PRIMARY KEY,
    kind          BIGINT NOT NULL,
    state         BIGINT NOT NULL,
    tenant_id     TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    ai_center_id  TEXT NOT NULL,
    node          TEXT NOT NULL,
    allocation_id TEXT NOT NULL,
    reason        TEXT NOT NULL,
    message       TEXT NOT NULL,
    steps         TEXT NOT NULL,
    request_id    TEXT NOT NULL,
    digest        TEXT NOT NULL,
    phase         BIGINT NOT NULL,
    grace         BIGINT NOT NULL, -- seconds
    stop_at       BIGINT NOT NULL,
    then_free     BOOLEAN NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL
);
CREATE UNIQUE INDEX operations_by_request ON operations (tenant_id, request_id) WHERE request_id <> '';
CREATE INDEX operations_by_tenant ON operations (tenant_id, operation_id);
CREATE INDEX operations_by_center ON operations (ai_center_id, operation_id);
CREATE INDEX operations_by_allocation ON operations (allocation_id, operation_id);
CREATE INDEX operations_open ON operations (operation_id) WHERE ended_at = 0;
CREATE INDEX operations_ended ON operations (ended_at) WHERE ended_at > 0;

-- wish is the center applied for, ai_center_id the one that holds it.
CREATE TABLE allocations (
    allocation_id TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    tenant_id     TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    state         BIGINT NOT NULL,
    reason        TEXT NOT NULL,
    spec_id       TEXT NOT NULL,
    packages      BIGINT NOT NULL,
    region        TEXT NOT NULL,
    wish          TEXT NOT NULL,
    ai_center_id  TEXT NOT NULL,
    nodes         TEXT NOT NULL, -- JSON
    weights       TEXT NOT NULL, -- JSON
    no_wait       BOOLEAN NOT NULL,
    final         BIGINT NOT NULL, -- the state it ends in when it is releasing
    operation_id  TEXT NOT NULL,   -- of the application
    closing       TEXT NOT NULL,   -- of the release
    start_at      BIGINT NOT NULL,
    end_at        BIGINT NOT NULL, -- 0: open
    created_at    BIGINT NOT NULL,
    granted_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL
);
CREATE INDEX allocations_by_tenant ON allocations (tenant_id, allocation_id);
CREATE INDEX allocations_open ON allocations (state) WHERE ended_at = 0;

-- held is what the registry holds for it: wanted, or more while runs use more.
CREATE TABLE allocation_amounts (
    allocation_id TEXT NOT NULL REFERENCES allocations (allocation_id),
    resource      TEXT NOT NULL,
    wanted        BIGINT NOT NULL CHECK (wanted >= 0),
    held          BIGINT NOT NULL,
    used          BIGINT NOT NULL CHECK (used >= 0),
    PRIMARY KEY (allocation_id, resource),
    CHECK (held >= used)
);

-- How nodes are to be. generation counts what was asked, applied what the
-- center has confirmed.
CREATE TABLE node_controls (
    ai_center_id  TEXT NOT NULL,
    node          TEXT NOT NULL,
    isolated      BOOLEAN NOT NULL,
    allocation_id TEXT NOT NULL,
    reason        TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    changed_at    BIGINT NOT NULL,
    generation    BIGINT NOT NULL,
    applied       BIGINT NOT NULL,
    applied_at    BIGINT NOT NULL,
    problem       TEXT NOT NULL,
    repaired      BIGINT NOT NULL,
    PRIMARY KEY (ai_center_id, node)
);
CREATE INDEX node_controls_by_allocation ON node_controls (allocation_id) WHERE allocation_id <> '';
