-- +goose Up
CREATE TABLE pool_components (
    node_id    TEXT PRIMARY KEY,
    parts      TEXT NOT NULL, -- JSON, as told
    log_level  BIGINT NOT NULL,
    idle_s     BIGINT NOT NULL,
    run_s      BIGINT NOT NULL,
    generation BIGINT NOT NULL, -- of the configuration; 0: there is none
    set_at     BIGINT NOT NULL,
    applied    BIGINT NOT NULL,
    problem    TEXT NOT NULL,
    told_at    BIGINT NOT NULL
);

CREATE TABLE pool_alarm_rules (
    kind       BIGINT PRIMARY KEY,
    enabled    BOOLEAN NOT NULL,
    threshold  BIGINT NOT NULL,
    severity   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- What was used, by the hour. Amounts are of milliseconds.
CREATE TABLE pool_use (
    hour       BIGINT NOT NULL,
    node_id    TEXT NOT NULL,
    device_id  TEXT NOT NULL,
    group_id   TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    compute    BIGINT NOT NULL, -- percent
    memory     BIGINT NOT NULL, -- MiB
    used       BIGINT NOT NULL, -- MiB
    lent_ms    BIGINT NOT NULL,
    device_us  BIGINT NOT NULL,
    PRIMARY KEY (hour, node_id, device_id, group_id, user_id)
);

-- What there was.
CREATE TABLE pool_room (
    hour      BIGINT NOT NULL,
    node_id   TEXT NOT NULL,
    device_id TEXT NOT NULL,
    compute   BIGINT NOT NULL,
    memory    BIGINT NOT NULL,
    PRIMARY KEY (hour, node_id, device_id)
);

-- How much device time of a slice has been counted.
CREATE TABLE pool_marks (
    slice_id  TEXT PRIMARY KEY,
    device_us BIGINT NOT NULL
);

CREATE TABLE pool_counted (
    only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
    at       BIGINT NOT NULL
);
