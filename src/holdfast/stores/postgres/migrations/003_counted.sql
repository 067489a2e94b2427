-- The number of what each worker has counted last: what is sent again is not counted again. A row of its own, so that no
-- heartbeat waits for an exchange; it goes with the worker.
CREATE TABLE holdfast_counted (
    worker text COLLATE "C" NOT NULL PRIMARY KEY,
    number bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
