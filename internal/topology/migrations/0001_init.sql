-- +goose Up
-- One row for each change that was seen: those seen together are one revision.
-- Times only grow, also when the clock goes back.
CREATE TABLE topology_revisions (
    seq     BIGINT PRIMARY KEY,
    at      BIGINT NOT NULL UNIQUE,
    added   BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    removed BIGINT NOT NULL
);
-- A vertex, or "link:ID", as it was from one revision until before another.
-- opened: 1 added, 2 changed; closed: 0 it is so now, 2 it changed, 3 it went.
CREATE TABLE topology_versions (
    item_id      TEXT NOT NULL,
    from_seq     BIGINT NOT NULL,
    until_seq    BIGINT NOT NULL,
    valid_from   BIGINT NOT NULL,
    valid_until  BIGINT NOT NULL,
    added_at     BIGINT NOT NULL,
    opened       BIGINT NOT NULL CHECK (opened IN (1, 2)),
    closed       BIGINT NOT NULL CHECK (closed IN (0, 2, 3)),
    ai_center_id TEXT NOT NULL,
    tenant_id    TEXT NOT NULL,
    body         TEXT NOT NULL,
    PRIMARY KEY (item_id, from_seq),
    CHECK (from_seq < until_seq),
    CHECK (valid_from < valid_until)
);
CREATE UNIQUE INDEX topology_versions_open ON topology_versions (item_id) WHERE closed = 0;
CREATE INDEX topology_versions_from ON topology_versions (from_seq, item_id);
CREATE INDEX topology_versions_until ON topology_versions (until_seq, item_id) WHERE closed > 0;
CREATE INDEX topology_versions_center ON topology_versions (ai_center_id, from_seq);
-- Links that people declared.
CREATE TABLE topology_links (
    link_id          TEXT PRIMARY KEY,
    name             TEXT NOT NULL,
    from_id          TEXT NOT NULL,
    to_id            TEXT NOT NULL,
    kind             BIGINT NOT NULL CHECK (kind BETWEEN 1 AND 6),
    bandwidth        BIGINT NOT NULL CHECK (bandwidth >= 0),
    latency_us       BIGINT NOT NULL CHECK (latency_us >= 0),
    service_provider TEXT NOT NULL,
    tenant_id        TEXT NOT NULL,
    version          BIGINT NOT NULL CHECK (version > 0),
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL
);
-- Bindings that people changed or added; the others are in the program.
CREATE TABLE topology_bindings (
    binding_id TEXT PRIMARY KEY,
    body       TEXT NOT NULL,
    version    BIGINT NOT NULL CHECK (version > 0),
    updated_at BIGINT NOT NULL
);
