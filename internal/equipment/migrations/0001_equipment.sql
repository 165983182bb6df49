-- +goose Up
-- A switch, router or the like of a center. What alarms ask for is in columns;
-- ports and the rest are in body.
CREATE TABLE equipment (
    ai_center_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    source       TEXT NOT NULL,
    kind         BIGINT NOT NULL,
    state        BIGINT NOT NULL,
    since        BIGINT NOT NULL, -- of the state
    ports        BIGINT NOT NULL,
    ports_down   BIGINT NOT NULL,
    worst_errors BIGINT NOT NULL, -- ppm
    worst_loss   BIGINT NOT NULL, -- ppm
    body         TEXT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (ai_center_id, name)
);
CREATE INDEX equipment_troubled ON equipment (ai_center_id, name) WHERE state <> 1 OR ports_down > 0 OR worst_errors > 0 OR worst_loss > 0;
CREATE INDEX equipment_by_source ON equipment (ai_center_id, source);

-- How many ports of it that are up lead to a node.
CREATE TABLE equipment_uplinks (
    ai_center_id TEXT NOT NULL,
    node         TEXT NOT NULL,
    name         TEXT NOT NULL,
    up           BIGINT NOT NULL,
    PRIMARY KEY (ai_center_id, node, name)
);
CREATE INDEX equipment_uplinks_of ON equipment_uplinks (ai_center_id, name);

-- Who reports and may not be silent for long.
CREATE TABLE equipment_sources (
    ai_center_id TEXT NOT NULL,
    source       TEXT NOT NULL,
    due_at       BIGINT NOT NULL, -- when it should have said something
    PRIMARY KEY (ai_center_id, source)
);

CREATE TABLE equipment_rules (
    kind       BIGINT PRIMARY KEY,
    enabled    BOOLEAN NOT NULL,
    threshold  BIGINT NOT NULL,
    severity   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
