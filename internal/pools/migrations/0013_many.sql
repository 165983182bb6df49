-- +goose Up
-- What is asked for with each report, request and end, where there are many slices.
CREATE INDEX pool_slices_node ON pool_slices (node_id) WHERE state IN (2, 3);
CREATE INDEX pool_slices_to ON pool_slices (to_node) WHERE state IN (2, 3);
CREATE INDEX pool_slices_lent ON pool_slices (group_id, weighted, compute, memory_mib) WHERE state IN (2, 3);
CREATE INDEX pool_slices_queue ON pool_slices (priority DESC, created_at, slice_id) WHERE state = 1;
CREATE INDEX pool_slices_new ON pool_slices (slice_id) WHERE state = 1 AND reason = '';
CREATE INDEX pool_slices_near ON pool_slices (slice_id) WHERE state IN (2, 3) AND (affinity <> '' OR anti_affinity <> '' OR set_id <> '');
CREATE INDEX pool_slices_metered ON pool_slices (metered_at) WHERE state IN (2, 3);
CREATE INDEX pool_slices_polled ON pool_slices (polled_at) WHERE state = 1 AND NOT fixed;
CREATE INDEX pool_slices_assigned ON pool_slices (assigned_at) WHERE state = 2 AND NOT fixed;
CREATE INDEX pool_slices_left ON pool_slices (left_at) WHERE state = 3 AND left_at > 0;
-- What nodes and devices have changed since a process read them: each change has the
-- number that it made; after one of known, all is read anew.
CREATE TABLE pool_revision (
    rev   BIGINT NOT NULL,
    known BIGINT NOT NULL
);
INSERT INTO pool_revision (rev, known) VALUES (1, 1);
ALTER TABLE pool_nodes ADD COLUMN rev BIGINT NOT NULL DEFAULT 0;
ALTER TABLE pool_devices ADD COLUMN rev BIGINT NOT NULL DEFAULT 0;
CREATE INDEX pool_nodes_rev ON pool_nodes (rev);
CREATE INDEX pool_devices_rev ON pool_devices (rev);
