-- +goose Up
-- Counts changes of what is in force.
CREATE TABLE policy_state (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    generation BIGINT NOT NULL
);
INSERT INTO policy_state (one, generation) VALUES (1, 1);
-- The policies there are. issued is the version in force, 0: none.
CREATE TABLE policies (
    policy_id    TEXT PRIMARY KEY,
    latest       BIGINT NOT NULL CHECK (latest > 0),
    issued       BIGINT NOT NULL CHECK (issued BETWEEN 0 AND latest),
    issued_scope TEXT NOT NULL, -- JSON; '': none is in force
    issued_at    BIGINT NOT NULL,
    issued_by    TEXT NOT NULL,
    test_id      TEXT NOT NULL, -- comparison under way
    words        TEXT NOT NULL, -- ID, title and description of the latest version, lower case
    CHECK (test_id = '' OR issued > 0)
);
CREATE INDEX policies_issued ON policies (policy_id) WHERE issued > 0;
-- Every version there was; body is the document as JSON.
CREATE TABLE policy_versions (
    policy_id  TEXT NOT NULL,
    version    BIGINT NOT NULL CHECK (version > 0),
    state      BIGINT NOT NULL CHECK (state BETWEEN 1 AND 5),
    body       TEXT NOT NULL,
    note       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    checked_at BIGINT NOT NULL,
    checked    TEXT NOT NULL,
    PRIMARY KEY (policy_id, version)
);
-- What was done, for people; scope is what a version was issued to.
CREATE TABLE policy_events (
    event_id  TEXT PRIMARY KEY,
    policy_id TEXT NOT NULL,
    at        BIGINT NOT NULL,
    action    TEXT NOT NULL,
    version   BIGINT NOT NULL,
    scope     TEXT NOT NULL,
    user_id   TEXT NOT NULL,
    reason    TEXT NOT NULL
);
CREATE INDEX policy_events_by_policy ON policy_events (policy_id, event_id);
-- Comparisons; arms and results are JSON.
CREATE TABLE policy_tests (
    test_id    TEXT PRIMARY KEY,
    policy_id  TEXT NOT NULL,
    running    BOOLEAN NOT NULL,
    arms       TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    started_by TEXT NOT NULL,
    ended_at   BIGINT NOT NULL,
    ended_by   TEXT NOT NULL,
    winner     TEXT NOT NULL,
    reason     TEXT NOT NULL,
    results    TEXT NOT NULL
);
CREATE INDEX policy_tests_by_policy ON policy_tests (policy_id, test_id);
-- Which arm decided about a job.
CREATE TABLE policy_test_jobs (
    test_id TEXT NOT NULL,
    job_id  TEXT NOT NULL,
    arm     TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (test_id, job_id)
);
-- One that was deleted keeps its row, without code: its number is not used again.
CREATE TABLE policy_modules (
    module_id  TEXT NOT NULL,
    version    BIGINT NOT NULL CHECK (version > 0),
    sha256     TEXT NOT NULL,
    code       BYTEA NOT NULL,
    filters    BOOLEAN NOT NULL,
    scores     BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    isolated   BOOLEAN NOT NULL,
    fault      TEXT NOT NULL,
    fault_at   BIGINT NOT NULL,
    deleted    BOOLEAN NOT NULL,
    PRIMARY KEY (module_id, version)
);
