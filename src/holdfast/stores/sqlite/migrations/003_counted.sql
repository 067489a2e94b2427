-- The number of what each worker has counted last: what is sent again is not counted again. It goes with the worker.
CREATE TABLE holdfast_counted (
    worker TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL
) WITHOUT ROWID;
