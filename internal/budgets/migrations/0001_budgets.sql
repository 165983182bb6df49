-- +goose Up
CREATE TABLE budgets (
    budget_id     TEXT PRIMARY KEY,
    tenant_id     TEXT NOT NULL, -- '': every tenant's work
    user_id       TEXT NOT NULL, -- '': anybody's
    project       TEXT NOT NULL, -- '': any
    amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
    period        BIGINT NOT NULL,
    time_zone     TEXT NOT NULL,
    start_at      BIGINT NOT NULL, -- of a period without end
    warn_percents TEXT NOT NULL,   -- JSON
    action        BIGINT NOT NULL,
    grace_seconds BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL
);

-- What was reached in the current period: percents of the amount.
CREATE TABLE budget_marks (
    budget_id TEXT NOT NULL,
    period_at BIGINT NOT NULL, -- when the period began
    percent   BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (budget_id, period_at, percent)
);
