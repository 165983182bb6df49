-- +goose Up
CREATE TABLE jobs (
    job_id        TEXT PRIMARY KEY,
    tenant_id     TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    user_name     TEXT NOT NULL,
    name          TEXT NOT NULL,
    spec          BYTEA NOT NULL,  -- yunhe.jobs.v1.JobSpec
    priority      BIGINT NOT NULL,
    state         BIGINT NOT NULL, -- yunhe.jobs.v1.State
    outcome       BIGINT NOT NULL, -- the state it will end in, 0 while open
    reason        TEXT NOT NULL,
    message       TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    started_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL,
    placed_at     BIGINT NOT NULL,
    scheduling_us BIGINT NOT NULL,
    waiting_since BIGINT NOT NULL, -- when a replica was last put in the queue
    total         BIGINT NOT NULL,
    unplaced      BIGINT NOT NULL CHECK (unplaced >= 0),
    active        BIGINT NOT NULL CHECK (active >= 0),
    running       BIGINT NOT NULL CHECK (running >= 0),
    succeeded     BIGINT NOT NULL,
    failed        BIGINT NOT NULL,
    stopped       BIGINT NOT NULL,
    issued        BIGINT NOT NULL, -- first runs accepted by their centers
    version       BIGINT NOT NULL,
    CHECK (unplaced + active + succeeded + failed + stopped = total)
);
CREATE INDEX jobs_by_tenant ON jobs (tenant_id, job_id);
CREATE INDEX jobs_waiting ON jobs (waiting_since) WHERE unplaced > 0;
CREATE INDEX jobs_open ON jobs (state) WHERE ended_at = 0;

CREATE TABLE attempts (
    attempt_id    TEXT PRIMARY KEY,
    job_id        TEXT NOT NULL,
    task_index    BIGINT NOT NULL,
    replica_index BIGINT NOT NULL,
    attempt       BIGINT NOT NULL,
    ai_center_id  TEXT NOT NULL,
    spec_id       TEXT NOT NULL,
    resources     TEXT NOT NULL, -- what was reserved, JSON
    price         BIGINT NOT NULL,
    decision_id   TEXT NOT NULL,
    state         BIGINT NOT NULL,
    stop_asked    BOOLEAN NOT NULL,
    retry         BOOLEAN NOT NULL, -- failed, and its replica waits for another run
    reason        TEXT NOT NULL,
    message       TEXT NOT NULL,
    placed_at     BIGINT NOT NULL,
    started_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL,
    exit_code     BIGINT NOT NULL,
    cpu_us        BIGINT NOT NULL,
    memory_peak   BIGINT NOT NULL,
    log_inline    BYTEA,
    UNIQUE (job_id, task_index, replica_index, attempt)
);
CREATE INDEX attempts_active ON attempts (ai_center_id, placed_at) WHERE ended_at = 0;

CREATE TABLE requests (
    tenant_id  TEXT NOT NULL,
    request_id TEXT NOT NULL,
    digest     TEXT NOT NULL,
    job_ids    TEXT NOT NULL, -- space separated
    at         BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, request_id)
);
CREATE INDEX requests_by_time ON requests (at);

-- The key that signs links to logs, made at the first start.
CREATE TABLE signing (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    key BYTEA NOT NULL
);
