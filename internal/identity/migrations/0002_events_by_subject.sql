-- +goose Up
CREATE INDEX audit_events_by_subject ON audit_events (subject, event_id);
