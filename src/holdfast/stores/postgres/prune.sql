-- What is on the list, up to so many records, one that has ended more than once there more than once; those that are left over, or that somebody has locked, go back on it.
-- name: over
WITH clock AS MATERIALIZED (SELECT :now AS now),
chosen AS MATERIALIZED (
    SELECT ctid AS place FROM holdfast_kept, clock WHERE keep_until <= now ORDER BY keep_until LIMIT %(limit)s
    FOR UPDATE OF holdfast_kept SKIP LOCKED
),
gone AS (
    DELETE FROM holdfast_kept WHERE ctid = ANY (ARRAY(SELECT place FROM chosen)) RETURNING keep_until, seqs
),
each AS MATERIALIZED (
    SELECT min(gone.keep_until) AS keep_until, one.seq, row_number() OVER (ORDER BY min(gone.keep_until), one.seq) AS place
    FROM gone CROSS JOIN LATERAL unnest(gone.seqs) AS one (seq) GROUP BY one.seq
),
got AS MATERIALIZED (
    SELECT job.seq, job.lane, job.state
    FROM clock, each JOIN holdfast_jobs AS job ON job.seq = each.seq
    WHERE each.place <= %(limit)s AND job.keep_until <= clock.now
        AND job.state IN ('completed', 'failed', 'dead_letter', 'cancelled')
    ORDER BY job.seq
    FOR UPDATE OF job SKIP LOCKED
),
back AS (
    INSERT INTO holdfast_kept (keep_until, seqs)
    SELECT each.keep_until, array_agg(each.seq)
    FROM clock, each JOIN holdfast_jobs AS job ON job.seq = each.seq
    WHERE job.keep_until <= clock.now AND each.seq NOT IN (SELECT seq FROM got)
    GROUP BY each.keep_until
)
SELECT seq, lane, state FROM got

-- name: delete_counts
DELETE FROM holdfast_counts WHERE minute > 0 AND minute < floor(:now / 60) - %(kept_minutes)s

-- A worker's id must not come back, so the row outlives it; long after nobody uses it any more.
-- name: delete_workers
DELETE FROM holdfast_workers
WHERE gone_at < :now - %(kept_s)s
    AND NOT EXISTS (SELECT 1 FROM holdfast_claims WHERE worker = holdfast_workers.id AND held > 0)

-- name: delete_counted
DELETE FROM holdfast_counted WHERE worker NOT IN (SELECT id FROM holdfast_workers)

-- What was to be told to workers that are gone.
-- name: delete_cancelled
DELETE FROM holdfast_cancelled WHERE worker NOT IN (SELECT id FROM holdfast_workers WHERE gone_at IS NULL)

-- name: delete_listeners
DELETE FROM holdfast_listeners WHERE until < :now

-- The newest stays, as the next version is counted from it.
-- name: delete_removed_values
DELETE FROM holdfast_values WHERE digest IN (
    SELECT digest FROM holdfast_values
    WHERE removed_at < :now - %(kept_s)s AND version < (SELECT max(version) FROM holdfast_values)
    ORDER BY removed_at LIMIT %(limit)s
)
