-- +goose Up
-- performance_from says who the factor is from: declared, measured, operator.
ALTER TABLE centers ADD COLUMN performance_from TEXT NOT NULL DEFAULT 'declared' CHECK (performance_from IN ('declared', 'measured', 'operator'));
