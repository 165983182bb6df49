-- +goose Up
-- Changes with all that follows; who changes anything writes it first.
CREATE TABLE calendar_version (
    one     BIGINT PRIMARY KEY CHECK (one = 1),
    version BIGINT NOT NULL
);
INSERT INTO calendar_version (one, version) VALUES (1, 1);

CREATE TABLE reservations (
    reservation_id TEXT PRIMARY KEY,
    tenant_id      TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    name           TEXT NOT NULL,
    state          BIGINT NOT NULL,
    reason         TEXT NOT NULL,
    spec_id        TEXT NOT NULL,
    packages       BIGINT NOT NULL,
    amounts        TEXT NOT NULL, -- JSON
    recurrence     TEXT NOT NULL,
    time_zone      TEXT NOT NULL,
    preempt        BOOLEAN NOT NULL,
    unused_seconds BIGINT NOT NULL,
    start_at       BIGINT NOT NULL,
    end_at         BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL,
    request_id     TEXT NOT NULL,
    digest         TEXT NOT NULL
);
CREATE UNIQUE INDEX reservations_by_request ON reservations (tenant_id, request_id) WHERE request_id <> '';
CREATE INDEX reservations_by_tenant ON reservations (tenant_id, reservation_id);

-- parts is JSON: where it is, how much, and the allocation that holds it.
-- idle_since is when it began, or was last seen in use; asked_until is when
-- runs may be taken back for it again.
CREATE TABLE reservation_times (
    reservation_id TEXT NOT NULL REFERENCES reservations (reservation_id),
    number         BIGINT NOT NULL,
    state          BIGINT NOT NULL,
    from_at        BIGINT NOT NULL,
    to_at          BIGINT NOT NULL CHECK (to_at > from_at),
    parts          TEXT NOT NULL,
    idle_since     BIGINT NOT NULL,
    asked_until    BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL,
    PRIMARY KEY (reservation_id, number)
);
CREATE INDEX reservation_times_open ON reservation_times (from_at) WHERE ended_at = 0;

CREATE TABLE maintenance (
    maintenance_id TEXT PRIMARY KEY,
    tenant_id      TEXT NOT NULL, -- of who planned it
    user_id        TEXT NOT NULL,
    ai_center_id   TEXT NOT NULL,
    reason         TEXT NOT NULL,
    runs           BIGINT NOT NULL,
    notice_seconds BIGINT NOT NULL,
    drain_seconds  BIGINT NOT NULL,
    start_at       BIGINT NOT NULL,
    end_at         BIGINT NOT NULL,
    recurrence     TEXT NOT NULL,
    time_zone      TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    canceled_at    BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL,
    request_id     TEXT NOT NULL,
    digest         TEXT NOT NULL
);
CREATE UNIQUE INDEX maintenance_by_request ON maintenance (tenant_id, request_id) WHERE request_id <> '';
CREATE INDEX maintenance_by_center ON maintenance (ai_center_id, maintenance_id);
CREATE INDEX maintenance_open ON maintenance (maintenance_id) WHERE ended_at = 0;
