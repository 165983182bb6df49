-- +goose Up
-- version counts the changes of the catalog; defaults says that the first start was had.
CREATE TABLE registry_version (
    name    TEXT PRIMARY KEY,
    version BIGINT NOT NULL
);
INSERT INTO registry_version (name, version) VALUES ('catalog', 1);
-- longitude and latitude are millionths of a degree.
CREATE TABLE centers (
    ai_center_id   TEXT PRIMARY KEY,
    name           TEXT NOT NULL,
    region         TEXT NOT NULL,
    located        BOOLEAN NOT NULL,
    longitude      BIGINT NOT NULL,
    latitude       BIGINT NOT NULL,
    security_grade BIGINT NOT NULL CHECK (security_grade BETWEEN 0 AND 5),
    static_power   BIGINT NOT NULL,
    active_power   BIGINT NOT NULL,
    performance    BIGINT NOT NULL,
    adapter        TEXT NOT NULL,
    drained        BOOLEAN NOT NULL,
    edited         BOOLEAN NOT NULL,
    labels         TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL
);
CREATE INDEX centers_by_region ON centers (region, ai_center_id);
-- total may fall below used when a center declares less than is held there.
CREATE TABLE center_capacity (
    ai_center_id TEXT NOT NULL REFERENCES centers (ai_center_id),
    resource     TEXT NOT NULL,
    total        BIGINT NOT NULL CHECK (total >= 0),
    used         BIGINT NOT NULL CHECK (used >= 0),
    PRIMARY KEY (ai_center_id, resource)
);
CREATE TABLE center_load (
    ai_center_id TEXT PRIMARY KEY REFERENCES centers (ai_center_id),
    running      BIGINT NOT NULL CHECK (running >= 0),
    waiting      BIGINT NOT NULL CHECK (waiting >= 0)
);
CREATE TABLE center_monitor (
    ai_center_id      TEXT PRIMARY KEY REFERENCES centers (ai_center_id),
    last_seen         BIGINT NOT NULL,
    down              BOOLEAN NOT NULL,
    measured_at       BIGINT NOT NULL,
    cpu_busy_permille BIGINT NOT NULL,
    memory_busy       BIGINT NOT NULL,
    memory_total      BIGINT NOT NULL,
    storage_busy      BIGINT NOT NULL,
    storage_total     BIGINT NOT NULL
);
CREATE TABLE specs (
    resource_spec_id TEXT PRIMARY KEY,
    name             TEXT NOT NULL,
    quantity         TEXT NOT NULL,
    service_types    TEXT NOT NULL,
    price            BIGINT NOT NULL CHECK (price >= 0),
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL
);
-- No foreign key to specs: a center may declare an offer before its specification exists.
CREATE TABLE spec_offers (
    resource_spec_id TEXT NOT NULL,
    ai_center_id     TEXT NOT NULL REFERENCES centers (ai_center_id),
    price            BIGINT NOT NULL CHECK (price >= 0),
    edited           BOOLEAN NOT NULL,
    withdrawn        BOOLEAN NOT NULL,
    PRIMARY KEY (resource_spec_id, ai_center_id)
);
CREATE INDEX spec_offers_by_center ON spec_offers (ai_center_id);
CREATE TABLE images (
    image_id     TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    ai_center_id TEXT NOT NULL,
    base_os      TEXT NOT NULL,
    framework    TEXT NOT NULL,
    specs        TEXT NOT NULL,
    everywhere   BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL
);
CREATE TABLE image_centers (
    image_id     TEXT NOT NULL REFERENCES images (image_id),
    ai_center_id TEXT NOT NULL REFERENCES centers (ai_center_id),
    declared     BOOLEAN NOT NULL,
    PRIMARY KEY (image_id, ai_center_id)
);
CREATE INDEX image_centers_by_center ON image_centers (ai_center_id);
