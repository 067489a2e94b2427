-- By the order of the table, as everybody else locks them.
-- name: look
SELECT id, seq, lane, priority, due_at, state, token, changed_at, settled, attempt, started_at, worker
FROM holdfast_jobs WHERE id = ANY (%(ids)s::text[]) ORDER BY seq FOR UPDATE

-- Whoever holds the lease loses it: no token is right from now on, nor the one of an earlier settlement. The rows are locked.
-- name: end
WITH clock AS MATERIALIZED (SELECT :now AS now),
done AS (
    UPDATE holdfast_jobs AS job
    SET state = one.state, changed_at = now, settled = one.settled, settled_token = NULL, token = NULL,
        given_up = one.given_up,
        result = one.result,
        keep_until = now + CASE WHEN held_key IS NULL OR one.keep_s IS NULL THEN one.keep_s ELSE greatest(one.keep_s, %(window_s)s) END,
        reason = one.reason,
        started_at = coalesce(one.started_at, job.started_at),
        attempt = greatest(job.attempt, one.attempt),
        worker = coalesce(one.worker, job.worker),
        elapsed_s = 0, is_suspect = false, is_orphan = false, orphaned = 0, blame = '',
        failure_type = CASE WHEN one.is_failure THEN one.failure_type ELSE job.failure_type END,
        severity = CASE WHEN one.is_failure THEN one.severity ELSE job.severity END,
        error_name = CASE WHEN one.is_failure THEN one.error_name ELSE job.error_name END,
        message = CASE WHEN one.is_failure THEN one.message ELSE job.message END,
        fingerprint = CASE WHEN one.is_failure THEN one.fingerprint ELSE job.fingerprint END,
        last_failed_at = CASE WHEN one.is_failure THEN one.failed_at ELSE job.last_failed_at END,
        first_failed_at = coalesce(job.first_failed_at, one.first_failed_at)
    FROM clock, unnest(
        %(seqs)s::bigint[], %(before)s::text[], %(states)s::text[], %(ways)s::bigint[], %(given_up)s::bigint[],
        %(results)s::bytea[], %(kept)s::float8[], %(reasons)s::text[], %(started)s::float8[], %(numbers)s::bigint[],
        %(workers)s::text[], %(failures)s::boolean[], %(failure_types)s::text[], %(severities)s::text[],
        %(error_names)s::text[], %(messages)s::text[], %(fingerprints)s::text[], %(failed)s::float8[],
        %(first_failed)s::float8[]
    ) AS one (
        seq, before, state, settled, given_up, result, keep_s, reason, started_at, attempt, worker, is_failure, failure_type,
        severity, error_name, message, fingerprint, failed_at, first_failed_at
    )
    WHERE job.seq = one.seq AND job.state = one.before
    RETURNING job.seq, job.lane, one.before, job.state, job.keep_until, job.changed_at, job.fingerprint, job.tenant, job.failure_type,
        job.has_notes
),
notes AS (
    DELETE FROM holdfast_notes WHERE seq = ANY (ARRAY(SELECT seq FROM done WHERE has_notes AND state = 'completed'))
),
:letters,
tallies AS (
    INSERT INTO holdfast_tallies (lane, state, n)
    SELECT lane, before, -count(*) FROM done GROUP BY lane, before UNION ALL SELECT lane, state, count(*) FROM done GROUP BY lane, state
)
INSERT INTO holdfast_kept (keep_until, seqs)
SELECT keep_until, array_agg(seq) FROM done WHERE keep_until IS NOT NULL GROUP BY keep_until

-- name: add_attempts
INSERT INTO holdfast_attempts (seq, record)
SELECT seq, record FROM unnest(%(seqs)s::bigint[], %(records)s::bytea[]) WITH ORDINALITY AS one (seq, record, place) ORDER BY place
