-- +goose Up
-- What a driver reports of the machines of its center. content and indexed are
-- hashes: of everything, and of what the two tables below repeat for queries.
CREATE TABLE nodes (
    ai_center_id     TEXT NOT NULL REFERENCES centers (ai_center_id),
    name             TEXT NOT NULL,
    state            BIGINT NOT NULL CHECK (state BETWEEN 1 AND 3),
    reason           TEXT NOT NULL,
    capacity         TEXT NOT NULL,
    allocatable      TEXT NOT NULL,
    architecture     TEXT NOT NULL,
    operating_system TEXT NOT NULL,
    accelerators     TEXT NOT NULL,
    labels           TEXT NOT NULL,
    content          TEXT NOT NULL,
    indexed          TEXT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    PRIMARY KEY (ai_center_id, name)
);
CREATE INDEX nodes_by_state ON nodes (ai_center_id, state);
CREATE TABLE node_labels (
    ai_center_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    label        TEXT NOT NULL,
    value        TEXT NOT NULL,
    PRIMARY KEY (ai_center_id, name, label),
    FOREIGN KEY (ai_center_id, name) REFERENCES nodes (ai_center_id, name)
);
CREATE TABLE node_accelerators (
    ai_center_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    position     BIGINT NOT NULL,
    resource     TEXT NOT NULL,
    vendor       TEXT NOT NULL,
    model        TEXT NOT NULL,
    number       BIGINT NOT NULL CHECK (number > 0),
    PRIMARY KEY (ai_center_id, name, position),
    FOREIGN KEY (ai_center_id, name) REFERENCES nodes (ai_center_id, name)
);
CREATE INDEX node_accelerators_by_model ON node_accelerators (model, ai_center_id, name);
-- Specifications an operator deleted: a declaration does not bring them back.
CREATE TABLE deleted_specs (
    resource_spec_id TEXT PRIMARY KEY
);
