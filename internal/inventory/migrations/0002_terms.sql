-- +goose Up
-- What attributes say, for queries: a number for each "name=value"
-- (see terms.go). Rows are a hint: who reads them compares the attributes.
CREATE TABLE resource_terms (
    term        BIGINT NOT NULL,
    resource_id TEXT NOT NULL,
    PRIMARY KEY (term, resource_id)
);
-- The version whose terms are there; 0: none yet.
ALTER TABLE resources ADD COLUMN indexed BIGINT NOT NULL DEFAULT 0;
CREATE INDEX resources_unindexed ON resources (resource_id) WHERE indexed <> version;
