-- +goose Up
-- Rules (kind 1) and conversions (kind 2) as they are now; body is JSON.
CREATE TABLE access_documents (
    kind       BIGINT NOT NULL CHECK (kind BETWEEN 1 AND 2),
    id         TEXT NOT NULL,
    version    BIGINT NOT NULL CHECK (version > 0),
    body       TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (kind, id)
);
-- Every version there was; an empty body is a deletion.
CREATE TABLE access_versions (
    kind    BIGINT NOT NULL,
    id      TEXT NOT NULL,
    version BIGINT NOT NULL,
    body    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    user_id TEXT NOT NULL,
    PRIMARY KEY (kind, id, version)
);
-- One row: a counter of changes, the switch, and when all was last looked at.
CREATE TABLE access_state (
    name         TEXT PRIMARY KEY,
    changes      BIGINT NOT NULL,
    enforce      BOOLEAN NOT NULL,
    evaluated_at BIGINT NOT NULL,
    seeded       BIGINT NOT NULL
);
INSERT INTO access_state (name, changes, enforce, evaluated_at, seeded) VALUES ('access', 1, FALSE, 0, 0);
CREATE TABLE access_reports (
    resource_id  TEXT PRIMARY KEY,
    kind         BIGINT NOT NULL CHECK (kind BETWEEN 1 AND 3),
    name         TEXT NOT NULL,
    status       BIGINT NOT NULL CHECK (status BETWEEN 1 AND 3),
    verdicts     TEXT NOT NULL,
    evaluated_at BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL
);
CREATE INDEX access_reports_by_status ON access_reports (status, resource_id);
-- Steps of an access that are no calls of the API.
CREATE TABLE access_steps (
    step_id     TEXT PRIMARY KEY,
    resource_id TEXT NOT NULL,
    at          BIGINT NOT NULL,
    step        TEXT NOT NULL,
    message     TEXT NOT NULL,
    outcome     TEXT NOT NULL
);
CREATE INDEX access_steps_by_resource ON access_steps (resource_id, step_id);
