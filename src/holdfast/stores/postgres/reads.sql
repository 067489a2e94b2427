-- The columns of a record, in the order in which `records.py` takes them apart.
-- name: columns
seq, id, payload, state, priority, tenant, "user", project, idempotency_key, created_at, due_at, started_at,
changed_at, attempt, reason, result, progress, failure_type, severity, error_name, message, fingerprint,
first_failed_at, last_failed_at, original_payload, replays, worker, trace,
(SELECT queue FROM holdfast_lanes WHERE holdfast_lanes.lane = holdfast_jobs.lane),
(SELECT task FROM holdfast_lanes WHERE holdfast_lanes.lane = holdfast_jobs.lane), settled, has_notes

-- name: get
SELECT :columns FROM holdfast_jobs WHERE id = ANY (%(ids)s::text[])

-- name: attempts
SELECT seq, record FROM holdfast_attempts WHERE seq = ANY (%(seqs)s::bigint[]) ORDER BY seq, number

-- Of these places the jobs that are wanted.
-- name: find
SELECT :columns FROM holdfast_jobs WHERE seq = ANY (%(places)s::bigint[]) AND :where ORDER BY seq DESC LIMIT %(limit)s

-- name: by_seq
SELECT :columns FROM holdfast_jobs WHERE seq = ANY (%(seqs)s::bigint[])

-- name: has_text
(
    strpos(lower(id COLLATE "C"), %(text)s) > 0 OR strpos(lower(error_name COLLATE "C"), %(text)s) > 0
    OR strpos(lower(message COLLATE "C"), %(text)s) > 0 OR strpos(lower(reason COLLATE "C"), %(text)s) > 0
    OR coalesce(strpos(lower(idempotency_key COLLATE "C"), %(text)s) > 0, false)
    OR strpos(lower(holdfast_text(payload) COLLATE "C"), %(text)s) > 0
    OR lane IN (SELECT lane FROM holdfast_lanes WHERE strpos(lower(task COLLATE "C"), %(text)s) > 0)
)

-- name: tallies
SELECT lane.queue, lane.task, tally.state, sum(tally.n)::bigint
FROM (SELECT lane, state, sum(n) AS n FROM holdfast_tallies GROUP BY 1, 2) AS tally JOIN holdfast_lanes AS lane ON lane.lane = tally.lane
GROUP BY 1, 2, 3 HAVING sum(tally.n) > 0 ORDER BY 1, 2, 3

-- name: workers
SELECT record, seen_at FROM holdfast_workers WHERE gone_at IS NULL ORDER BY number

-- name: counts
SELECT minute, task, name, sum(n)::bigint FROM holdfast_counts WHERE minute >= greatest(1, %(since)s)
GROUP BY 1, 2, 3 ORDER BY minute, task COLLATE "C", name COLLATE "C"

-- name: totals
SELECT minute, task, name, sum(n)::bigint FROM holdfast_counts WHERE minute = 0
GROUP BY 1, 2, 3 ORDER BY task COLLATE "C", name COLLATE "C"

-- name: now
SELECT :now AS holdfast

-- What a claim may have to step over. Many are no trouble by themselves, as the index forgets them; see held_from_vacuum.
-- name: dead_rows
SELECT pg_stat_get_dead_tuples('holdfast_ready'::regclass) + pg_stat_get_dead_tuples('holdfast_delayed'::regclass)

-- Who has kept dead rows from being forgotten for longest, if for so long: somebody could still ask for them.
-- name: held_from_vacuum
SELECT who, held_s /* holdfast */ FROM (
    SELECT 'session ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '') AS who,
        extract(epoch FROM clock_timestamp() - xact_start)::float8 AS held_s
    FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        AND coalesce(backend_xmin, backend_xid) IS NOT NULL
    UNION ALL
    SELECT 'prepared transaction ' || quote_literal(gid), extract(epoch FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts WHERE database = current_database()
) AS holder
WHERE held_s >= %(held_s)s ORDER BY held_s DESC LIMIT 1

-- The earliest due time of each lane's ready jobs: steps from lane to lane and from priority to priority in the index.
-- name: oldest_ready
WITH RECURSIVE step (lane, priority, due_at, n) AS (
    (SELECT lane, priority, due_at, 1 FROM holdfast_ready ORDER BY lane, priority DESC, due_at, seq LIMIT 1)
    UNION ALL
    SELECT next.lane, next.priority, next.due_at, step.n + 1 FROM step CROSS JOIN LATERAL (
        SELECT * FROM (
            (SELECT lane, priority, due_at FROM holdfast_ready
             WHERE lane = step.lane AND priority < step.priority ORDER BY priority DESC, due_at, seq LIMIT 1)
            UNION ALL
            (SELECT lane, priority, due_at FROM holdfast_ready
             WHERE lane > step.lane ORDER BY lane, priority DESC, due_at, seq LIMIT 1)
        ) AS either LIMIT 1
    ) AS next
    WHERE step.n < %(limit)s
)
SELECT lane.queue, min(step.due_at) FROM step JOIN holdfast_lanes AS lane ON lane.lane = step.lane GROUP BY lane.queue

-- Those that are due and were not claimed since.
-- name: oldest_due
SELECT lane.queue, min(job.wakes_at) FROM (
    SELECT lane, wakes_at FROM holdfast_delayed WHERE wakes_at <= :now ORDER BY wakes_at, seq LIMIT %(limit)s
) AS job JOIN holdfast_lanes AS lane ON lane.lane = job.lane
GROUP BY lane.queue
