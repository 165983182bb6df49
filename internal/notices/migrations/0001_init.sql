-- +goose Up
CREATE TABLE notice_settings (
    only_row   BIGINT PRIMARY KEY CHECK (only_row = 1),
    settings   TEXT NOT NULL, -- JSON, without the password
    password   TEXT NOT NULL, -- sealed; '': none
    updated_at BIGINT NOT NULL
);

CREATE TABLE notices (
    notice_id TEXT PRIMARY KEY,
    alarm_id  TEXT NOT NULL,
    severity  BIGINT NOT NULL,
    cleared   BOOLEAN NOT NULL,
    tenant_id TEXT NOT NULL, -- '': everyone's
    in_site   BOOLEAN NOT NULL,
    message   TEXT NOT NULL,
    at        BIGINT NOT NULL
);

CREATE TABLE notice_reads (
    user_id TEXT PRIMARY KEY,
    up_to   TEXT NOT NULL
);

CREATE TABLE notice_mails (
    mail_id    TEXT PRIMARY KEY,
    notice_id  TEXT NOT NULL,
    recipients TEXT NOT NULL, -- JSON
    subject    TEXT NOT NULL,
    body       TEXT NOT NULL,
    state      BIGINT NOT NULL,
    attempts   BIGINT NOT NULL,
    problem    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    due_at     BIGINT NOT NULL,
    sent_at    BIGINT NOT NULL
);
CREATE INDEX notice_mails_due ON notice_mails (due_at) WHERE state = 1;
