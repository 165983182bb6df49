-- +goose Up
-- How often a lease changed hands, and who had it last. Written then only, so
-- that whoever reads it in a transaction meets no renewal.
CREATE TABLE lease_terms (
    name  TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    term  BIGINT NOT NULL
);
