-- Dead letters counted as they come and go, and indexes of what never changes: so that nobody ever has to look at all jobs.
-- No claim and no completion touches any of it. Names may be longer than an index takes, so it has their beginnings.

CREATE INDEX holdfast_jobs_lane ON holdfast_jobs (lane, seq);
CREATE INDEX holdfast_jobs_tenant ON holdfast_jobs (left(tenant, 64) COLLATE "C", seq) WHERE tenant <> '';
CREATE INDEX holdfast_jobs_user ON holdfast_jobs (left("user", 64) COLLATE "C", seq) WHERE "user" <> '';
CREATE INDEX holdfast_jobs_project ON holdfast_jobs (left(project, 64) COLLATE "C", seq) WHERE project <> '';
DROP INDEX holdfast_jobs_cause;

-- It catches errors, which no parallel worker of the server may.
ALTER FUNCTION holdfast_text(bytea) PARALLEL UNSAFE;

-- Texts of any length, as something short to find them by. Dead letters are of one cause when all five of these are the
-- same: fingerprint, queue, task, tenant and failure type.
CREATE FUNCTION holdfast_digest(VARIADIC texts text[]) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT substring(sha256(convert_to(array_to_json(texts)::text, 'UTF8')) FROM 1 FOR 16)
$$;

-- One row for each dead letter.
CREATE TABLE holdfast_letters (
    seq         bigint NOT NULL PRIMARY KEY,
    cause       bytea  NOT NULL,  -- a digest, as that of its fingerprint
    fingerprint bytea  NOT NULL,
    ended_at    float8 NOT NULL
);
CREATE INDEX holdfast_letters_fingerprint ON holdfast_letters (fingerprint, ended_at, seq);
CREATE INDEX holdfast_letters_cause ON holdfast_letters (cause, seq);
CREATE INDEX holdfast_letters_cause_at ON holdfast_letters (cause, ended_at, seq);
CREATE INDEX holdfast_letters_at ON holdfast_letters (ended_at, cause);

-- How many letters there are of each cause, as a sum of changes; those of letters that went have no texts.
CREATE TABLE holdfast_causes (
    cause        bytea  NOT NULL,
    fingerprint  text COLLATE "C",
    queue        text COLLATE "C",
    task         text COLLATE "C",
    tenant       text COLLATE "C",
    failure_type text COLLATE "C",  -- '': it was given up without a failure
    n            bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- How many that are still there were given up in each hour since 1970, as a sum of changes; hours that nobody is told of
-- are pruned.
CREATE TABLE holdfast_letter_hours (
    hour  bigint NOT NULL,
    cause bytea  NOT NULL,
    n     bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX holdfast_letter_hours_first ON holdfast_letter_hours (hour);

WITH letter AS MATERIALIZED (
    SELECT job.seq, job.changed_at, job.fingerprint, lane.queue, lane.task, job.tenant,
        coalesce(job.failure_type, '') AS failure_type,
        holdfast_digest(job.fingerprint, lane.queue, lane.task, job.tenant, coalesce(job.failure_type, '')) AS cause
    FROM holdfast_jobs AS job JOIN holdfast_lanes AS lane ON lane.lane = job.lane
    WHERE job.given_up = 2
),
letters AS (
    INSERT INTO holdfast_letters (seq, cause, fingerprint, ended_at)
    SELECT seq, cause, holdfast_digest(fingerprint), changed_at FROM letter
),
hours AS (
    INSERT INTO holdfast_letter_hours (hour, cause, n) SELECT floor(changed_at / 3600), cause, count(*) FROM letter GROUP BY 1, 2
)
INSERT INTO holdfast_causes (cause, fingerprint, queue, task, tenant, failure_type, n)
SELECT cause, fingerprint, queue, task, tenant, failure_type, count(*) FROM letter GROUP BY 1, 2, 3, 4, 5, 6;
