-- Everything of Holdfast's in the database; other tables in it are the user's own.

CREATE TABLE holdfast_meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;

-- One row for each boot of the machine: what to add to the boot-time clock for seconds since 1970.
CREATE TABLE holdfast_clock (
    boot TEXT NOT NULL PRIMARY KEY,
    base REAL NOT NULL
) WITHOUT ROWID;

-- Jobs that are open or closed together. A row never changes and its number is never another's, so every process may keep
-- it in memory; when some are dropped, which have no jobs, `lanes_epoch` in holdfast_meta changes.
CREATE TABLE holdfast_lanes (
    lane  INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    task  TEXT NOT NULL,
    gates TEXT NOT NULL,  -- a sorted JSON array, without queue and task
    UNIQUE (queue, task, gates)
);

-- The columns of the hot path come first: SQLite reads a row from its front.
CREATE TABLE holdfast_jobs (
    seq              INTEGER PRIMARY KEY,           -- the order in which jobs were enqueued
    id               TEXT    NOT NULL UNIQUE,
    lane             INTEGER NOT NULL,
    state            TEXT    NOT NULL DEFAULT 'queued',
    token            BLOB,                          -- of the lease, or of the latest one
    priority         INTEGER NOT NULL,
    due_at           REAL    NOT NULL,
    created_at       REAL    NOT NULL,
    changed_at       REAL    NOT NULL,              -- when it came into its state: claimed, or ended
    is_ready         INTEGER,                       -- 1: can be claimed; else NULL
    wakes_at         REAL,                          -- when it will be ready; NULL where that is not to come
    given_up         INTEGER,                       -- 1 failed, 2 dead letter, 3 cancelled; else NULL
    attempt          INTEGER NOT NULL DEFAULT 0,    -- claims
    retries          INTEGER NOT NULL DEFAULT 0,    -- settled attempts that count, since it was enqueued or replayed
    elapsed_s        REAL    NOT NULL DEFAULT 0,
    is_suspect       INTEGER NOT NULL DEFAULT 0,
    is_alone         INTEGER NOT NULL DEFAULT 0,    -- its worker runs it by itself
    is_orphan        INTEGER NOT NULL DEFAULT 0,    -- `worker` is dead, and the holder of the lease is to judge it
    orphaned         INTEGER NOT NULL DEFAULT 0,
    has_notes        INTEGER NOT NULL DEFAULT 0,
    tenant           TEXT    NOT NULL DEFAULT '',
    user             TEXT    NOT NULL DEFAULT '',
    project          TEXT    NOT NULL DEFAULT '',
    trace            TEXT,
    payload          BLOB    NOT NULL,
    worker           TEXT    NOT NULL DEFAULT '',   -- who runs it, or ran it last
    started_at       REAL,
    settled          INTEGER NOT NULL DEFAULT 0,    -- the number of the latest settlement's change
    settled_token    BLOB,                          -- and the lease it was made under
    result           BLOB,
    keep_until       REAL,
    held_key         TEXT,                          -- tenant, task and idempotency key, while it is held
    idempotency_key  TEXT,
    original_payload BLOB,
    reason           TEXT    NOT NULL DEFAULT '',
    progress         REAL,
    blame            TEXT    NOT NULL DEFAULT '',
    replays          INTEGER NOT NULL DEFAULT 0,
    failure_type     TEXT,
    severity         TEXT,
    error_name       TEXT    NOT NULL DEFAULT '',
    message          TEXT    NOT NULL DEFAULT '',
    fingerprint      TEXT    NOT NULL DEFAULT '',
    first_failed_at  REAL,
    last_failed_at   REAL
);

-- A job passes insert, claim and complete, and every index that has a column of such a change, in its condition too, is
-- looked at for each row. So these stand on columns of their own: a claim touches the first, a completion `kept`.
CREATE INDEX holdfast_jobs_ready ON holdfast_jobs (lane, priority DESC, due_at, seq) WHERE is_ready = 1;
CREATE INDEX holdfast_jobs_delayed ON holdfast_jobs (wakes_at) WHERE wakes_at IS NOT NULL;
CREATE UNIQUE INDEX holdfast_jobs_key ON holdfast_jobs (held_key) WHERE held_key IS NOT NULL;
CREATE INDEX holdfast_jobs_kept ON holdfast_jobs (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX holdfast_jobs_given_up ON holdfast_jobs (given_up) WHERE given_up IS NOT NULL;
CREATE INDEX holdfast_jobs_cause ON holdfast_jobs (fingerprint) WHERE given_up = 2;

-- How many jobs there are: changed once for each transaction, so that nobody ever has to count.
CREATE TABLE holdfast_tallies (
    lane  INTEGER NOT NULL,
    state TEXT    NOT NULL,
    n     INTEGER NOT NULL,
    PRIMARY KEY (lane, state)
) WITHOUT ROWID;

-- One row for each claim that is not settled to its end, and for the latest of each living worker: what a dead worker held, without an index of running jobs.
CREATE TABLE holdfast_claims (
    number INTEGER PRIMARY KEY,
    token  BLOB    NOT NULL UNIQUE,
    worker TEXT    NOT NULL,
    seqs   BLOB    NOT NULL,  -- 64-bit integers, in the order in which they were handed out
    held   INTEGER NOT NULL   -- how many of them still run under this token
);

CREATE TABLE holdfast_workers (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    lease_until REAL NOT NULL,
    seen_at     REAL NOT NULL,
    gone_at     REAL,            -- NULL: alive. A worker that is gone does not come back
    record      BLOB NOT NULL    -- as its heartbeat described it, JSON
);

-- What a worker is to be told with its next heartbeat.
CREATE TABLE holdfast_cancelled (
    worker TEXT NOT NULL,
    id     TEXT NOT NULL,
    PRIMARY KEY (worker, id)
) WITHOUT ROWID;

-- A first attempt that succeeds has no row here: the job says all about it.
CREATE TABLE holdfast_attempts (
    number INTEGER PRIMARY KEY,
    seq    INTEGER NOT NULL,
    record BLOB    NOT NULL  -- JSON
);
CREATE INDEX holdfast_attempts_job ON holdfast_attempts (seq);

CREATE TABLE holdfast_notes (
    seq  INTEGER NOT NULL,
    step TEXT    NOT NULL,  -- 's' and the step's name; 'c': the latest checkpoint
    data BLOB    NOT NULL,
    PRIMARY KEY (seq, step)
) WITHOUT ROWID;

CREATE TABLE holdfast_replays (
    seq    INTEGER NOT NULL,
    replay TEXT    NOT NULL,
    PRIMARY KEY (seq, replay)
) WITHOUT ROWID;

CREATE TABLE holdfast_values (
    key        TEXT    NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL UNIQUE,
    data       BLOB,               -- NULL: removed; the row stays for an hour, for those who are to hear of it
    removed_at REAL
) WITHOUT ROWID;
CREATE INDEX holdfast_values_removed ON holdfast_values (removed_at) WHERE removed_at IS NOT NULL;

CREATE TABLE holdfast_counts (
    minute INTEGER NOT NULL,
    task   TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (minute, task, name)
) WITHOUT ROWID;
