-- +goose Up
-- version counts what was changed: "placement" what centers have, "all" anything.
CREATE TABLE tag_versions (
    name    TEXT PRIMARY KEY,
    version BIGINT NOT NULL
);
INSERT INTO tag_versions (name, version) VALUES ('all', 1), ('placement', 1);
CREATE TABLE tag_groups (
    group_id    TEXT PRIMARY KEY,
    title       TEXT NOT NULL,
    title_zh    TEXT NOT NULL,
    description TEXT NOT NULL,
    kinds       BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);
-- kinds are bits: 1 << kind.
CREATE TABLE tag_definitions (
    tag_key     TEXT PRIMARY KEY,
    title       TEXT NOT NULL,
    title_zh    TEXT NOT NULL,
    group_id    TEXT NOT NULL REFERENCES tag_groups (group_id),
    description TEXT NOT NULL,
    value_type  BIGINT NOT NULL CHECK (value_type BETWEEN 1 AND 3),
    allowed     TEXT NOT NULL,
    kinds       BIGINT NOT NULL,
    setter      BIGINT NOT NULL CHECK (setter BETWEEN 1 AND 3),
    inherited   BOOLEAN NOT NULL,
    hidden      BOOLEAN NOT NULL,
    status      BIGINT NOT NULL CHECK (status BETWEEN 1 AND 2),
    version     BIGINT NOT NULL CHECK (version > 0),
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);
-- One row for an object and tag: what a person set there, or a rule.
CREATE TABLE tag_values (
    object     TEXT NOT NULL,
    tag_key    TEXT NOT NULL REFERENCES tag_definitions (tag_key),
    kind       BIGINT NOT NULL,
    value      TEXT NOT NULL,
    blocked    BOOLEAN NOT NULL,
    source     BIGINT NOT NULL CHECK (source BETWEEN 1 AND 2),
    origin     TEXT NOT NULL,
    batch_id   TEXT NOT NULL,
    reason     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (object, tag_key)
);
CREATE INDEX tag_values_by_kind ON tag_values (kind, object);
CREATE INDEX tag_values_by_key ON tag_values (tag_key);
CREATE TABLE tag_rules (
    rule_id          TEXT PRIMARY KEY,
    title            TEXT NOT NULL,
    description      TEXT NOT NULL,
    tag_key          TEXT NOT NULL REFERENCES tag_definitions (tag_key),
    kinds            BIGINT NOT NULL,
    set_when         TEXT NOT NULL,
    set_until        TEXT NOT NULL,
    value            TEXT NOT NULL,
    value_expression TEXT NOT NULL,
    hold_seconds     BIGINT NOT NULL,
    priority         BIGINT NOT NULL,
    mode             BIGINT NOT NULL CHECK (mode BETWEEN 1 AND 3),
    version          BIGINT NOT NULL CHECK (version > 0),
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL
);
CREATE INDEX tag_rules_by_key ON tag_rules (tag_key);
-- Where rules with a hold or an until stand: on, and since when that is to change.
CREATE TABLE tag_rule_states (
    rule_id TEXT NOT NULL REFERENCES tag_rules (rule_id),
    object  TEXT NOT NULL,
    is_on   BOOLEAN NOT NULL,
    since   BIGINT NOT NULL,
    PRIMARY KEY (rule_id, object)
);
CREATE TABLE tag_rule_looks (
    rule_id      TEXT PRIMARY KEY REFERENCES tag_rules (rule_id),
    matched      BIGINT NOT NULL,
    problem      TEXT NOT NULL,
    evaluated_at BIGINT NOT NULL
);
CREATE TABLE tag_history (
    change_id      TEXT PRIMARY KEY,
    at             BIGINT NOT NULL,
    subject        TEXT NOT NULL,
    kind           BIGINT NOT NULL,
    tag_key        TEXT NOT NULL,
    before         TEXT NOT NULL,
    before_blocked BOOLEAN NOT NULL,
    after          TEXT NOT NULL,
    after_blocked  BOOLEAN NOT NULL,
    source         BIGINT NOT NULL,
    origin         TEXT NOT NULL,
    batch_id       TEXT NOT NULL,
    reason         TEXT NOT NULL
);
CREATE INDEX tag_history_by_subject ON tag_history (subject, change_id);
CREATE INDEX tag_history_by_key ON tag_history (tag_key, change_id);
CREATE INDEX tag_history_by_batch ON tag_history (batch_id, change_id) WHERE batch_id <> '';
CREATE TABLE tag_requests (
    request_id  TEXT NOT NULL,
    origin      TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    result      TEXT NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (request_id, origin)
);
CREATE INDEX tag_requests_by_time ON tag_requests (at);
-- Recommendations that were answered with no.
CREATE TABLE tag_dismissals (
    object  TEXT NOT NULL,
    tag_key TEXT NOT NULL REFERENCES tag_definitions (tag_key),
    value   TEXT NOT NULL,
    origin  TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (object, tag_key, value)
);
