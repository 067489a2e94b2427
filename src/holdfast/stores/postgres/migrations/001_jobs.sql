-- Everything of Holdfast's in the schema; other tables in it are the user's own. A zero character cannot stand in a text
-- here, so texts are written with it escaped (arrays.py), and payloads are bytes. Names of any length are found by digests.

CREATE TABLE holdfast_meta (
    key   text NOT NULL PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO holdfast_meta VALUES ('store', gen_random_uuid()::text);

-- Jobs that are open or closed together. A row never changes and its number is never another's, so every process may keep
-- it in memory; when some are dropped, which have no jobs, `lanes_epoch` in holdfast_meta changes. They are added one
-- transaction after the other, so that no number comes to light after a higher one.
CREATE TABLE holdfast_lanes (
    lane   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue  text  NOT NULL,
    task   text  NOT NULL,
    gates  text  NOT NULL,         -- a sorted JSON array, without queue and task
    digest bytea NOT NULL UNIQUE   -- of the three
);

-- No change of a job on its usual way (insert, claim, complete) touches a column that is indexed, and half of each page is
-- left for the next versions of its rows: so these changes write no index at all. Measured: 27-37,000 jobs/s claimed and
-- completed, and 7,000 with partial indexes of what is ready and what is kept on this table.
CREATE TABLE holdfast_jobs (
    seq              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order in which jobs were enqueued
    lane             bigint   NOT NULL,
    priority         bigint   NOT NULL,
    due_at           float8   NOT NULL,
    created_at       float8   NOT NULL,
    changed_at       float8   NOT NULL,              -- when it came into its state: claimed, or ended
    started_at       float8,
    elapsed_s        float8   NOT NULL DEFAULT 0,
    keep_until       float8,
    attempt          integer  NOT NULL DEFAULT 0,    -- claims
    retries          integer  NOT NULL DEFAULT 0,    -- settled attempts that count, since it was enqueued or replayed
    orphaned         integer  NOT NULL DEFAULT 0,
    settled          smallint NOT NULL DEFAULT 0,    -- the number of the latest settlement's change
    given_up         smallint,                       -- 1 failed, 2 dead letter, 3 cancelled; else NULL
    is_suspect       boolean  NOT NULL DEFAULT false,
    is_alone         boolean  NOT NULL DEFAULT false,  -- its worker runs it by itself
    is_orphan        boolean  NOT NULL DEFAULT false,  -- `worker` is dead, and the holder of the lease is to judge it
    has_notes        boolean  NOT NULL DEFAULT false,
    id               text COLLATE "C" NOT NULL UNIQUE,
    state            text COLLATE "C" NOT NULL DEFAULT 'queued',
    token            bytea,                          -- of the lease, or of the latest one
    settled_token    bytea,                          -- of the latest settlement
    worker           text     NOT NULL DEFAULT '',   -- who runs it, or ran it last
    payload          bytea    NOT NULL,
    result           bytea,
    tenant           text     NOT NULL DEFAULT '',
    "user"           text     NOT NULL DEFAULT '',
    project          text     NOT NULL DEFAULT '',
    trace            text,
    held_key         bytea,                          -- digest of tenant, task and idempotency key, while it is held
    idempotency_key  text,
    original_payload bytea,
    reason           text     NOT NULL DEFAULT '',
    progress         float8,
    blame            text     NOT NULL DEFAULT '',
    replays          integer  NOT NULL DEFAULT 0,
    failure_type     text,
    severity         text,
    error_name       text     NOT NULL DEFAULT '',
    message          text     NOT NULL DEFAULT '',
    fingerprint      text COLLATE "C" NOT NULL DEFAULT '',
    first_failed_at  float8,
    last_failed_at   float8
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE UNIQUE INDEX holdfast_jobs_key ON holdfast_jobs (held_key) WHERE held_key IS NOT NULL;
CREATE INDEX holdfast_jobs_given_up ON holdfast_jobs (given_up, seq) WHERE given_up IS NOT NULL;
CREATE INDEX holdfast_jobs_cause ON holdfast_jobs USING hash (fingerprint) WHERE given_up = 2;

-- One row for each job that can be claimed; a claim deletes it. The table stays as small as the backlog, so that vacuum is
-- quick, and is asked for often.
CREATE TABLE holdfast_ready (
    lane     bigint NOT NULL,
    priority bigint NOT NULL,
    due_at   float8 NOT NULL,
    seq      bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.1);
CREATE INDEX holdfast_ready_first ON holdfast_ready (lane, priority DESC, due_at, seq);

-- One row for each job that will be ready later: the claim that comes then moves it to holdfast_ready.
CREATE TABLE holdfast_delayed (
    wakes_at float8 NOT NULL,
    lane     bigint NOT NULL,
    priority bigint NOT NULL,
    seq      bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX holdfast_delayed_first ON holdfast_delayed (wakes_at, seq);

-- Which records to look at when their time to be kept is over; the record itself has the last word.
CREATE TABLE holdfast_kept (
    keep_until float8   NOT NULL,
    seqs       bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX holdfast_kept_first ON holdfast_kept (keep_until);

-- How many jobs there are, as a sum of changes: each transaction adds rows, so that none waits for another, and they are
-- summed up now and then.
CREATE TABLE holdfast_tallies (
    lane  bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    n     bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- One row for each claim that is not settled to its end, and for the latest of each living worker: what a dead worker held,
-- without an index of running jobs.
CREATE TABLE holdfast_claims (
    number bigint GENERATED ALWAYS AS IDENTITY,
    token  bytea    NOT NULL PRIMARY KEY,
    worker text     NOT NULL,
    seqs   bigint[] NOT NULL,  -- in the order in which they were handed out
    held   bigint   NOT NULL   -- how many of them still run under this token
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE holdfast_workers (
    number      bigint GENERATED ALWAYS AS IDENTITY,
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    lease_until float8 NOT NULL,
    seen_at     float8 NOT NULL,
    gone_at     float8,          -- NULL: alive. A worker that is gone does not come back
    record      bytea  NOT NULL  -- as its heartbeat described it, JSON
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Processes that wait for news: only for them is NOTIFY worth its price.
CREATE TABLE holdfast_listeners (
    id    text COLLATE "C" NOT NULL PRIMARY KEY,
    until float8 NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What a worker is to be told with its next heartbeat.
CREATE TABLE holdfast_cancelled (
    worker text NOT NULL,
    id     text NOT NULL
);
CREATE INDEX holdfast_cancelled_worker ON holdfast_cancelled (worker);

-- A first attempt that succeeds has no row here: the job says all about it.
CREATE TABLE holdfast_attempts (
    number bigint GENERATED ALWAYS AS IDENTITY,
    seq    bigint NOT NULL,
    record bytea  NOT NULL  -- JSON
);
CREATE INDEX holdfast_attempts_job ON holdfast_attempts (seq, number);

CREATE TABLE holdfast_notes (
    seq  bigint NOT NULL,
    step text   NOT NULL,  -- 's' and the step's name; 'c': the latest checkpoint
    data bytea  NOT NULL
);
CREATE INDEX holdfast_notes_job ON holdfast_notes (seq);

CREATE TABLE holdfast_replays (
    seq    bigint NOT NULL,
    replay text   NOT NULL
);
CREATE INDEX holdfast_replays_job ON holdfast_replays (seq);

CREATE TABLE holdfast_values (
    digest     bytea  NOT NULL PRIMARY KEY,  -- of the key
    key        text   NOT NULL,
    version    bigint NOT NULL UNIQUE,
    data       bytea,                        -- NULL: removed; the row stays for an hour, for those who are to hear of it
    removed_at float8
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX holdfast_values_removed ON holdfast_values (removed_at) WHERE removed_at IS NOT NULL;

-- Changes, as in holdfast_tallies.
CREATE TABLE holdfast_counts (
    minute bigint NOT NULL,
    task   text   NOT NULL,
    name   text   NOT NULL,
    n      bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX holdfast_counts_minute ON holdfast_counts (minute);

-- A payload as text to search in. One that was spoilt, and is not UTF-8, shows its other bytes as \ooo.
CREATE FUNCTION holdfast_text(payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN encode(payload, 'escape');
END $$;
