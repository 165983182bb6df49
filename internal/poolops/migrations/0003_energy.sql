-- +goose Up
ALTER TABLE pool_use ADD COLUMN energy_mj BIGINT NOT NULL DEFAULT 0;
ALTER TABLE pool_room ADD COLUMN energy_mj BIGINT NOT NULL DEFAULT 0;
ALTER TABLE pool_marks ADD COLUMN energy_mj BIGINT NOT NULL DEFAULT 0;

-- How much energy of a device has been counted, of a start of its node.
CREATE TABLE pool_energy_marks (
    node_id   TEXT NOT NULL,
    device_id TEXT NOT NULL,
    boot      TEXT NOT NULL,
    energy_mj BIGINT NOT NULL,
    PRIMARY KEY (node_id, device_id)
);
