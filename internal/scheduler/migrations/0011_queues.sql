-- +goose Up
CREATE TABLE queues (
    queue_id   TEXT PRIMARY KEY, -- a tenant, or a group of queues
    parent_id  TEXT NOT NULL,    -- '': at the top
    weight     BIGINT NOT NULL CHECK (weight >= 1),
    guaranteed TEXT NOT NULL,    -- amounts by resource, JSON
    borrowable TEXT NOT NULL,
    most       TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE queue_settings (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    body       TEXT NOT NULL,   -- JSON
    generation BIGINT NOT NULL, -- counts the changes of settings and queues
    updated_at BIGINT NOT NULL  -- of the settings; 0: they are the default
);
INSERT INTO queue_settings (one, body, generation, updated_at) VALUES (1, '{}', 1, 0);
