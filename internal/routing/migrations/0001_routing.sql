-- +goose Up
CREATE TABLE services (
    service_id TEXT PRIMARY KEY,
    tenant_id  TEXT NOT NULL,
    name       TEXT NOT NULL,
    spec       TEXT NOT NULL, -- JSON
    request_id TEXT NOT NULL,
    digest     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (tenant_id, name)
);
CREATE INDEX services_by_tenant ON services (tenant_id, service_id);
CREATE UNIQUE INDEX services_by_request ON services (tenant_id, request_id) WHERE request_id <> '';

-- What was reported of an origin and what was learned from it, JSON.
CREATE TABLE service_origins (
    service_id TEXT NOT NULL,
    origin_id  TEXT NOT NULL,
    state      TEXT NOT NULL,
    PRIMARY KEY (service_id, origin_id)
);

-- The weights in force, JSON.
CREATE TABLE service_routes (
    service_id TEXT PRIMARY KEY,
    generation BIGINT NOT NULL,
    made_at    BIGINT NOT NULL,
    routes     TEXT NOT NULL
);
