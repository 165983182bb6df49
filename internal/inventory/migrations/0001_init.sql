-- +goose Up
CREATE TABLE resources (
    resource_id      TEXT PRIMARY KEY,
    type             TEXT NOT NULL,
    name             TEXT NOT NULL,
    parent_id        TEXT NOT NULL,
    platform_id      TEXT NOT NULL,
    ai_center_id     TEXT NOT NULL,
    tenant_id        TEXT NOT NULL,
    region           TEXT NOT NULL,
    service_provider TEXT NOT NULL,
    state            BIGINT NOT NULL CHECK (state BETWEEN 1 AND 5),
    attributes       TEXT NOT NULL,
    labels           TEXT NOT NULL,
    version          BIGINT NOT NULL CHECK (version > 0),
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL
);
CREATE INDEX resources_by_type ON resources (type, resource_id);
CREATE INDEX resources_by_parent ON resources (parent_id, resource_id);
CREATE INDEX resources_by_platform ON resources (platform_id, resource_id) WHERE platform_id <> '';
CREATE INDEX resources_by_center ON resources (ai_center_id, resource_id) WHERE ai_center_id <> '';
-- What labels says, for queries.
CREATE TABLE resource_labels (
    resource_id TEXT NOT NULL REFERENCES resources (resource_id),
    label       TEXT NOT NULL,
    value       TEXT NOT NULL,
    PRIMARY KEY (resource_id, label)
);
-- Where centers are in the tree; a center that is not here is at its top.
CREATE TABLE center_places (
    ai_center_id TEXT PRIMARY KEY,
    parent_id    TEXT NOT NULL,
    platform_id  TEXT NOT NULL
);
CREATE INDEX center_places_by_parent ON center_places (parent_id);
-- One row for each time an identifier was issued; it stays when that was revoked.
CREATE TABLE identifiers (
    identifier        TEXT NOT NULL,
    resource_id       TEXT NOT NULL,
    tenant_id         TEXT NOT NULL,
    chip              TEXT NOT NULL,
    availability_zone TEXT NOT NULL,
    registration_code TEXT NOT NULL,
    issued_at         BIGINT NOT NULL,
    revoked_at        BIGINT NOT NULL,
    reason            TEXT NOT NULL,
    PRIMARY KEY (identifier, issued_at)
);
CREATE UNIQUE INDEX identifiers_issued ON identifiers (identifier) WHERE revoked_at = 0;
CREATE UNIQUE INDEX identifiers_by_chip ON identifiers (chip) WHERE revoked_at = 0;
CREATE UNIQUE INDEX identifiers_valid ON identifiers (resource_id) WHERE revoked_at = 0;
CREATE INDEX identifiers_by_resource ON identifiers (resource_id, identifier);
-- private is sealed.
CREATE TABLE identifier_keys (
    key_id     TEXT PRIMARY KEY,
    public     BYTEA NOT NULL,
    private    BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);
