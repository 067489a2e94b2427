-- The columns of a record, in the order in which `records.py` takes them apart.
-- name: columns
seq, id, payload, state, priority, tenant, user, project, idempotency_key, created_at, due_at, started_at,
changed_at, attempt, reason, result, progress, failure_type, severity, error_name, message, fingerprint,
first_failed_at, last_failed_at, original_payload, replays, worker, trace,
(SELECT queue FROM holdfast_lanes WHERE holdfast_lanes.lane = holdfast_jobs.lane),
(SELECT task FROM holdfast_lanes WHERE holdfast_lanes.lane = holdfast_jobs.lane), settled, has_notes

-- name: get
SELECT :columns FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: attempts
SELECT seq, record FROM holdfast_attempts WHERE seq IN (SELECT value FROM carray(?)) ORDER BY seq, number

-- Of these places the jobs that are wanted.
-- name: find
SELECT :columns FROM holdfast_jobs WHERE seq IN (SELECT value FROM carray(:places)) AND :where ORDER BY seq DESC LIMIT :limit

-- name: by_seq
SELECT :columns FROM holdfast_jobs WHERE seq IN (SELECT value FROM carray(?))

-- name: has_text
instr(lower(id), :text) OR instr(lower(error_name), :text) OR instr(lower(message), :text)
OR instr(lower(reason), :text) OR instr(lower(idempotency_key), :text)
OR instr(lower(CAST(payload AS TEXT)), :text)
OR lane IN (SELECT lane FROM holdfast_lanes WHERE instr(lower(task), :text))

-- name: tallies
SELECT lane.queue, lane.task, tally.state, sum(tally.n)
FROM holdfast_tallies AS tally JOIN holdfast_lanes AS lane ON lane.lane = tally.lane
GROUP BY 1, 2, 3 HAVING sum(tally.n) > 0 ORDER BY 1, 2, 3

-- name: workers
SELECT record, seen_at FROM holdfast_workers WHERE gone_at IS NULL ORDER BY number

-- name: counts
SELECT minute, task, name, n FROM holdfast_counts WHERE minute >= max(1, ?) ORDER BY 1, 2, 3

-- name: totals
SELECT minute, task, name, n FROM holdfast_counts WHERE minute = 0 ORDER BY 2, 3

-- The earliest due time of each lane's ready jobs: steps from lane to lane and from priority to priority in the index.
-- name: oldest_ready
WITH RECURSIVE step (lane, priority, due_at) AS (
    SELECT * FROM (
        SELECT lane, priority, due_at FROM holdfast_jobs WHERE is_ready = 1 ORDER BY lane, priority DESC, due_at LIMIT 1
    )
    UNION ALL
    SELECT next.lane, next.priority, next.due_at
    FROM step JOIN holdfast_jobs AS next ON next.seq = coalesce(
        (SELECT seq FROM holdfast_jobs WHERE is_ready = 1 AND lane = step.lane AND priority < step.priority
         ORDER BY priority DESC, due_at, seq LIMIT 1),
        (SELECT seq FROM holdfast_jobs WHERE is_ready = 1 AND lane > step.lane
         ORDER BY lane, priority DESC, due_at, seq LIMIT 1)
    )
)
SELECT lane.queue, min(step.due_at)
FROM (SELECT lane, due_at FROM step LIMIT :limit) AS step JOIN holdfast_lanes AS lane ON lane.lane = step.lane
GROUP BY lane.queue

-- Those that are due and were not claimed since.
-- name: oldest_due
SELECT lane.queue, min(job.due_at) FROM (
    SELECT lane, due_at FROM holdfast_jobs WHERE wakes_at <= :now ORDER BY wakes_at LIMIT :limit
) AS job JOIN holdfast_lanes AS lane ON lane.lane = job.lane
GROUP BY lane.queue
