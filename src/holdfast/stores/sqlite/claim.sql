-- What a claim must know before it looks for jobs, in one step.
-- name: glance
SELECT
    EXISTS (SELECT 1 FROM holdfast_workers WHERE id = :worker AND gone_at IS NULL),
    EXISTS (
        SELECT 1 FROM holdfast_claims
        WHERE token >= :token AND (token = :token OR worker = :worker AND substr(token, 1, 1) = substr(:token, 1, 1))
    ),
    (SELECT min(wakes_at) FROM holdfast_jobs WHERE wakes_at IS NOT NULL),
    (SELECT coalesce(max(lane), 0) FROM holdfast_lanes),
    coalesce((SELECT value FROM holdfast_meta WHERE key = 'lanes_epoch'), '')

-- name: promote
UPDATE holdfast_jobs SET is_ready = 1, wakes_at = NULL
WHERE seq IN (SELECT seq FROM holdfast_jobs WHERE wakes_at <= :now ORDER BY wakes_at LIMIT :limit)

-- name: next_due
SELECT min(wakes_at) FROM holdfast_jobs WHERE wakes_at IS NOT NULL

-- name: heads_of_one
SELECT json_group_array(seq) FROM (
    SELECT seq FROM holdfast_jobs WHERE is_ready = 1 AND lane = :lane ORDER BY priority DESC, due_at, seq LIMIT :limit
)

-- The first jobs of each of several lanes: what the order is made of, then seq and lane.
-- name: heads
SELECT json_group_array(json_array(-job.priority, job.due_at, job.seq, job.lane))
FROM carray(:lanes) AS one
CROSS JOIN holdfast_jobs AS job
WHERE job.seq IN (
    SELECT seq FROM holdfast_jobs WHERE is_ready = 1 AND lane = one.value ORDER BY priority DESC, due_at, seq LIMIT :limit
)

-- name: take
UPDATE holdfast_jobs
SET state = 'running', token = :token, worker = :worker,
    is_alone = :is_alone, attempt = attempt + 1, changed_at = :now, is_ready = NULL
WHERE seq IN (SELECT value FROM carray(:seqs))
    AND state IN ('queued', 'retrying', 'waiting') AND settled_token IS NOT :token

-- All in one row: beside a busy event loop each further step may cost milliseconds. What most jobs do not have comes
-- only with those that do.
-- name: deliveries
SELECT
    json_group_array(json_array(
        id, lane, attempt, due_at, octet_length(payload),
        CASE WHEN
            settled OR created_at <> due_at OR tenant <> '' OR user <> '' OR project <> '' OR trace IS NOT NULL
            OR is_orphan OR has_notes
        THEN json_array(
            created_at, retries, elapsed_s, settled, tenant, user, project, trace, is_suspect, orphaned,
            is_orphan, is_alone, blame, worker, changed_at, CASE WHEN has_notes THEN seq END
        ) END
    )),
    CAST(group_concat(CAST(payload AS TEXT), '') AS BLOB),
    min(changed_at)
FROM carray(:seqs) AS one
CROSS JOIN holdfast_jobs AS job ON job.seq = one.value
WHERE state = 'running' AND token = :token

-- name: seqs_of
SELECT seqs FROM holdfast_claims WHERE token = ? AND worker = ?

-- name: notes
SELECT seq, step, data FROM holdfast_notes WHERE seq IN (SELECT value FROM carray(?)) ORDER BY seq, step
