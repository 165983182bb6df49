-- +goose Up
-- What is asked (wanted, state) and what the center has made of it (bytes, used,
-- enforced). used is -1 where the center does not say.
CREATE TABLE volumes (
    volume_id    TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    tenant_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    ai_center_id TEXT NOT NULL,
    state        BIGINT NOT NULL,
    message      TEXT NOT NULL,
    wanted       BIGINT NOT NULL CHECK (wanted > 0),
    bytes        BIGINT NOT NULL,
    used         BIGINT NOT NULL,
    used_at      BIGINT NOT NULL,
    enforced     BOOLEAN NOT NULL,
    tries        BIGINT NOT NULL,
    next_at      BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL,
    UNIQUE (tenant_id, name)
);
CREATE INDEX volumes_by_center ON volumes (ai_center_id, volume_id);
CREATE INDEX volumes_open ON volumes (next_at) WHERE state IN (1, 3, 4);
