-- A record is kept as long as its idempotency key holds. The fence of every settlement is the line with the token: a stale holder changes nothing.

-- What is completed on its usual way. The sums, the claims and the list of what to prune follow from what took effect.
-- name: complete
WITH clock AS MATERIALIZED (SELECT :now AS now),
done AS (
    UPDATE holdfast_jobs AS job
    SET state = 'completed', changed_at = now, settled = 1, settled_token = job.token, retries = retries + 1,
        result = one.result,
        elapsed_s = one.elapsed_s,
        started_at = coalesce(one.started_at, job.started_at),
        keep_until = now + CASE WHEN held_key IS NULL OR one.keep_s IS NULL THEN one.keep_s ELSE greatest(one.keep_s, %(window_s)s) END,
        reason = '', is_suspect = false, is_orphan = false, orphaned = 0, blame = ''
    FROM clock, unnest(
        %(seqs)s::bigint[], %(tokens)s::bytea[], %(results)s::bytea[], %(elapsed)s::float8[], %(started)s::float8[],
        %(kept)s::float8[]
    ) AS one (seq, token, result, elapsed_s, started_at, keep_s)
    WHERE job.seq = one.seq
        AND job.state = 'running' AND job.token = one.token
    RETURNING job.seq, job.lane, job.token, job.keep_until, job.has_notes
),
notes AS (
    DELETE FROM holdfast_notes WHERE seq = ANY (ARRAY(SELECT seq FROM done WHERE has_notes))
),
tallies AS (
    INSERT INTO holdfast_tallies (lane, state, n)
    SELECT lane, 'running', -count(*) FROM done GROUP BY lane UNION ALL SELECT lane, 'completed', count(*) FROM done GROUP BY lane
),
claims AS (
    UPDATE holdfast_claims AS claim SET held = claim.held - gone.n
    FROM (SELECT token, count(*) AS n FROM done GROUP BY token) AS gone WHERE claim.token = gone.token
),
kept AS (
    INSERT INTO holdfast_kept (keep_until, seqs)
    SELECT keep_until, array_agg(seq) FROM done WHERE keep_until IS NOT NULL GROUP BY keep_until
)
SELECT seq FROM done

-- name: settle
WITH clock AS MATERIALIZED (SELECT :now AS now),
done AS (
    UPDATE holdfast_jobs AS job
    SET state = one.state, changed_at = now, settled = one.settled, settled_token = job.token, retries = retries + one.counts,
        attempt = attempt - 1 + one.counts,
        result = one.result,
        elapsed_s = one.elapsed_s,
        started_at = coalesce(one.started_at, job.started_at),
        keep_until = now + CASE WHEN held_key IS NULL OR one.keep_s IS NULL THEN one.keep_s ELSE greatest(one.keep_s, %(window_s)s) END,
        reason = one.reason,
        due_at = CASE WHEN one.is_release AND one.delay_s = 0 THEN due_at ELSE coalesce(now + one.delay_s, due_at) END,
        given_up = one.given_up,
        is_suspect = one.is_suspect,
        orphaned = CASE WHEN one.is_release THEN orphaned ELSE 0 END,
        is_orphan = false, blame = '',
        failure_type = CASE WHEN one.is_failure THEN one.failure_type ELSE job.failure_type END,
        severity = CASE WHEN one.is_failure THEN one.severity ELSE job.severity END,
        error_name = CASE WHEN one.is_failure THEN one.error_name ELSE job.error_name END,
        message = CASE WHEN one.is_failure THEN one.message ELSE job.message END,
        fingerprint = CASE WHEN one.is_failure THEN one.fingerprint ELSE job.fingerprint END,
        last_failed_at = CASE WHEN one.is_failure THEN one.failed_at ELSE last_failed_at END,
        first_failed_at = CASE WHEN one.is_failure THEN coalesce(first_failed_at, one.failed_at) ELSE first_failed_at END
    FROM clock, unnest(
        %(seqs)s::bigint[], %(tokens)s::bytea[], %(results)s::bytea[], %(elapsed)s::float8[], %(started)s::float8[],
        %(kept)s::float8[], %(states)s::text[], %(ways)s::bigint[], %(reasons)s::text[], %(delays)s::float8[],
        %(given_up)s::bigint[], %(counts)s::bigint[], %(suspects)s::boolean[], %(releases)s::boolean[],
        %(failures)s::boolean[], %(failure_types)s::text[], %(severities)s::text[], %(error_names)s::text[],
        %(messages)s::text[], %(fingerprints)s::text[], %(failed)s::float8[], %(attempts)s::bytea[]
    ) AS one (
        seq, token, result, elapsed_s, started_at, keep_s, state, settled, reason, delay_s, given_up, counts, is_suspect,
        is_release, is_failure, failure_type, severity, error_name, message, fingerprint, failed_at, attempt_record
    )
    WHERE job.seq = one.seq
        AND job.state = 'running' AND job.token = one.token
    RETURNING job.seq, job.lane, job.priority, job.due_at, job.state, job.token, job.keep_until, one.delay_s, one.attempt_record,
        job.changed_at, job.fingerprint, job.tenant, job.failure_type, job.has_notes
),
notes AS (
    DELETE FROM holdfast_notes WHERE seq = ANY (ARRAY(SELECT seq FROM done WHERE has_notes AND state = 'completed'))
),
ready AS (
    INSERT INTO holdfast_ready (lane, priority, due_at, seq)
    SELECT lane, priority, due_at, seq FROM done WHERE delay_s = 0
),
delayed AS (
    INSERT INTO holdfast_delayed (wakes_at, lane, priority, seq)
    SELECT due_at, lane, priority, seq FROM done WHERE delay_s > 0
),
:letters,
attempts AS (
    INSERT INTO holdfast_attempts (seq, record) SELECT seq, attempt_record FROM done WHERE attempt_record IS NOT NULL
),
tallies AS (
    INSERT INTO holdfast_tallies (lane, state, n)
    SELECT lane, 'running', -count(*) FROM done GROUP BY lane UNION ALL SELECT lane, state, count(*) FROM done GROUP BY lane, state
),
claims AS (
    UPDATE holdfast_claims AS claim SET held = claim.held - gone.n
    FROM (SELECT token, count(*) AS n FROM done GROUP BY token) AS gone WHERE claim.token = gone.token
),
kept AS (
    INSERT INTO holdfast_kept (keep_until, seqs)
    SELECT keep_until, array_agg(seq) FROM done WHERE keep_until IS NOT NULL GROUP BY keep_until
)
SELECT seq FROM done

-- The dead letters among what took effect: a part of others.
-- name: letters
letter AS MATERIALIZED (
    SELECT
        done.seq, done.changed_at AS ended_at, done.fingerprint, lane.queue, lane.task, done.tenant,
        coalesce(done.failure_type, '') AS failure_type,
        holdfast_digest(done.fingerprint, lane.queue, lane.task, done.tenant, coalesce(done.failure_type, '')) AS cause
    FROM done JOIN holdfast_lanes AS lane ON lane.lane = done.lane
    WHERE done.state = 'dead_letter'
),
letters AS (
    INSERT INTO holdfast_letters (seq, cause, fingerprint, ended_at)
    SELECT seq, cause, holdfast_digest(fingerprint), ended_at FROM letter
),
causes AS (
    INSERT INTO holdfast_causes (cause, fingerprint, queue, task, tenant, failure_type, n)
    SELECT cause, fingerprint, queue, task, tenant, failure_type, count(*) FROM letter GROUP BY 1, 2, 3, 4, 5, 6
),
hours AS (
    INSERT INTO holdfast_letter_hours (hour, cause, n) SELECT floor(ended_at / 3600), cause, count(*) FROM letter GROUP BY 1, 2
)

-- name: seqs
SELECT id, seq FROM holdfast_jobs WHERE id = ANY (%(ids)s::text[])

-- Which of these, that did not take effect now, had done so before: their places in the list.
-- name: outcome
SELECT one.place
FROM unnest(%(places)s::bigint[], %(seqs)s::bigint[], %(tokens)s::bytea[], %(ways)s::bigint[]) AS one (place, seq, token, settled)
JOIN holdfast_jobs AS job ON job.seq = one.seq
WHERE job.settled = one.settled AND job.settled_token = one.token
