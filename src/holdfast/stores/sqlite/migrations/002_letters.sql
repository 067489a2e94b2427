-- Dead letters counted as they come and go, and where the jobs of each kind are: so that nobody ever has to look at all
-- jobs. None of it is touched on a job's usual way but the marks, once for each transaction that adds jobs.

-- Dead letters with one fingerprint, queue, task, tenant and failure type. A row goes with its last letter.
CREATE TABLE holdfast_causes (
    cause        INTEGER PRIMARY KEY,
    fingerprint  TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    failure_type TEXT    NOT NULL,  -- '': it was given up without a failure
    n            INTEGER NOT NULL,
    UNIQUE (fingerprint, queue, task, tenant, failure_type)
);

-- One row for each dead letter.
CREATE TABLE holdfast_letters (
    seq         INTEGER PRIMARY KEY,
    cause       INTEGER NOT NULL,
    ended_at    REAL    NOT NULL,
    fingerprint TEXT    NOT NULL
);
CREATE INDEX holdfast_letters_fingerprint ON holdfast_letters (fingerprint, ended_at);
CREATE INDEX holdfast_letters_cause ON holdfast_letters (cause);
CREATE INDEX holdfast_letters_cause_at ON holdfast_letters (cause, ended_at);
CREATE INDEX holdfast_letters_at ON holdfast_letters (ended_at, cause);

-- How many letters that are still there were given up in each hour since 1970; hours that nobody is told of are pruned.
CREATE TABLE holdfast_letter_hours (
    hour  INTEGER NOT NULL,
    cause INTEGER NOT NULL,
    n     INTEGER NOT NULL,
    PRIMARY KEY (hour, cause)
) WITHOUT ROWID;

-- In which blocks of 256 jobs there is, or was, one of a lane ('l' and its number), a tenant ('t' and its name), a user
-- ('u') or a project ('p'). An index of every job would cost an enqueue a sixth; this costs it next to nothing.
CREATE TABLE holdfast_marks (
    name  TEXT    NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (name, block)
) WITHOUT ROWID;

DROP INDEX holdfast_jobs_cause;

INSERT INTO holdfast_causes (fingerprint, queue, task, tenant, failure_type, n)
SELECT job.fingerprint, lane.queue, lane.task, job.tenant, coalesce(job.failure_type, ''), count(*)
FROM holdfast_jobs AS job JOIN holdfast_lanes AS lane ON lane.lane = job.lane
WHERE job.given_up = 2
GROUP BY 1, 2, 3, 4, 5;

INSERT INTO holdfast_letters (seq, cause, ended_at, fingerprint)
SELECT job.seq, cause.cause, job.changed_at, job.fingerprint
FROM holdfast_jobs AS job
JOIN holdfast_lanes AS lane ON lane.lane = job.lane
JOIN holdfast_causes AS cause ON cause.fingerprint = job.fingerprint AND cause.queue = lane.queue AND cause.task = lane.task
    AND cause.tenant = job.tenant AND cause.failure_type = coalesce(job.failure_type, '')
WHERE job.given_up = 2;

INSERT INTO holdfast_letter_hours (hour, cause, n)
SELECT CAST(ended_at / 3600 AS INTEGER), cause, count(*) FROM holdfast_letters GROUP BY 1, 2;

INSERT INTO holdfast_marks (name, block)
SELECT DISTINCT 'l' || lane, seq >> 8 FROM holdfast_jobs
UNION SELECT DISTINCT 't' || tenant, seq >> 8 FROM holdfast_jobs WHERE tenant <> ''
UNION SELECT DISTINCT 'u' || user, seq >> 8 FROM holdfast_jobs WHERE user <> ''
UNION SELECT DISTINCT 'p' || project, seq >> 8 FROM holdfast_jobs WHERE project <> '';
