-- What every exchange must know. Another server than last time tells itself by when it was started.
-- name: now
SELECT :now, (SELECT coalesce(max(version), 0) FROM holdfast_values), extract(epoch FROM pg_postmaster_start_time())::float8

-- The same as a part of a claim that is one statement: it takes nothing when a delayed job is due, as that one comes first.
-- name: seen
seen AS MATERIALIZED (
    SELECT
        now,
        (SELECT coalesce(max(version), 0) FROM holdfast_values),
        extract(epoch FROM pg_postmaster_start_time())::float8,
        EXISTS (SELECT 1 FROM holdfast_workers WHERE id = %(worker)s AND gone_at IS NULL) AS is_alive,
        :is_used AS is_used,
        (SELECT wakes_at FROM holdfast_delayed ORDER BY wakes_at, seq LIMIT 1) AS next_due_at,
        (SELECT coalesce(max(lane), 0) FROM holdfast_lanes) AS newest,
        coalesce((SELECT value FROM holdfast_meta WHERE key = 'lanes_epoch'), ''),
        set_config('synchronous_commit', 'off', true)
    FROM clock
),

-- What a claim must know; before that, delayed jobs that are due become ready, but for those that others are moving. A claim
-- alone need not be on the disk when it is answered: what was not settled by then may run again after a server's crash.
-- name: glance
WITH clock AS MATERIALIZED (SELECT :now AS now),
due AS MATERIALIZED (
    SELECT ctid AS place FROM holdfast_delayed WHERE wakes_at <= (SELECT now FROM clock)
    ORDER BY wakes_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM holdfast_delayed WHERE ctid = ANY (ARRAY(SELECT place FROM due)) RETURNING wakes_at, lane, priority, seq
),
ready AS (
    INSERT INTO holdfast_ready (lane, priority, due_at, seq) SELECT lane, priority, wakes_at, seq FROM gone
)
SELECT
    now,
    (SELECT coalesce(max(version), 0) FROM holdfast_values),
    extract(epoch FROM pg_postmaster_start_time())::float8,
    EXISTS (SELECT 1 FROM holdfast_workers WHERE id = %(worker)s AND gone_at IS NULL),
    :is_used,
    CASE WHEN (SELECT count(*) FROM gone) >= %(limit)s THEN now ELSE (
        SELECT wakes_at FROM holdfast_delayed WHERE wakes_at > now ORDER BY wakes_at, seq LIMIT 1
    ) END,
    (SELECT coalesce(max(lane), 0) FROM holdfast_lanes),
    coalesce((SELECT value FROM holdfast_meta WHERE key = 'lanes_epoch'), ''),
    CASE WHEN %(is_alone)s THEN set_config('synchronous_commit', 'off', true) END
FROM clock

-- The first jobs of each of several lanes: what the order is made of, then seq and lane.
-- name: heads
SELECT -head.priority, head.due_at, head.seq, one.lane
FROM unnest(%(lanes)s::bigint[]) AS one (lane)
CROSS JOIN LATERAL (
    SELECT priority, due_at, seq FROM holdfast_ready AS ready WHERE ready.lane = one.lane
    ORDER BY priority DESC, due_at, seq LIMIT %(limit)s
) AS head

-- The same without those that others are about to take.
-- name: free_heads
SELECT -head.priority, head.due_at, head.seq, one.lane
FROM unnest(%(lanes)s::bigint[]) AS one (lane)
CROSS JOIN LATERAL (
    SELECT ready.priority, ready.due_at, ready.seq
    FROM holdfast_ready AS ready JOIN holdfast_jobs AS job ON job.seq = ready.seq
    WHERE ready.lane = one.lane AND job.state IN ('queued', 'retrying', 'waiting')
    ORDER BY ready.priority DESC, ready.due_at, ready.seq LIMIT %(limit)s
    FOR UPDATE OF job SKIP LOCKED
) AS head

-- So many from each lane, past those that others are taking, or have locked for whatever reason. Whoever changes a job
-- locks the job first, and what stands for it in other tables after that. A dead worker gets nothing, and a token that was
-- used either.
-- name: take
WITH clock AS MATERIALIZED (SELECT :now AS now),
:seen
head AS MATERIALIZED (
    SELECT head.place
    FROM unnest(%(lanes)s::bigint[], %(limits)s::bigint[]) AS one (lane, n)
    CROSS JOIN LATERAL (
        SELECT ready.ctid AS place
        FROM holdfast_ready AS ready JOIN holdfast_jobs AS job ON job.seq = ready.seq
        WHERE ready.lane = one.lane AND job.state IN ('queued', 'retrying', 'waiting')
            AND job.settled_token IS DISTINCT FROM %(token)s
        ORDER BY ready.priority DESC, ready.due_at, ready.seq LIMIT one.n
        FOR UPDATE OF job SKIP LOCKED
    ) AS head
    WHERE :may_take
),
gone AS (
    DELETE FROM holdfast_ready WHERE ctid = ANY (ARRAY(SELECT place FROM head)) RETURNING seq
),
taken AS (
    UPDATE holdfast_jobs AS job
    SET state = 'running', token = %(token)s, worker = %(worker)s,
        is_alone = %(is_alone)s, attempt = attempt + 1, changed_at = now
    FROM clock, gone
    WHERE job.seq = gone.seq
        AND job.state IN ('queued', 'retrying', 'waiting')
    RETURNING job.priority, job.settled, :jobs_columns
),
tallies AS (
    INSERT INTO holdfast_tallies (lane, state, n)
    SELECT lane, 'running', count(*) FROM taken GROUP BY lane
    UNION ALL
    SELECT lane, CASE settled WHEN 2 THEN 'retrying' WHEN 3 THEN 'waiting' ELSE 'queued' END, -count(*) FROM taken GROUP BY 1, 2
),
claims AS (
    INSERT INTO holdfast_claims (token, worker, seqs, held)
    SELECT %(token)s, %(worker)s, array_agg(seq ORDER BY priority DESC, due_at, seq), count(*) FROM taken HAVING count(*) > 0
    ON CONFLICT (token) DO UPDATE SET seqs = holdfast_claims.seqs || excluded.seqs, held = holdfast_claims.held + excluded.held
)
SELECT :answer ORDER BY priority DESC, due_at, seq

-- Not where there are lanes that we have not heard of: what is in them may come first.
-- name: may_take
EXISTS (SELECT 1 FROM holdfast_workers WHERE id = %(worker)s AND gone_at IS NULL)
AND (%(is_more)s OR NOT :is_used)
AND (SELECT coalesce(max(lane), 0) FROM holdfast_lanes) <= %(newest)s

-- name: may_take_all
(SELECT is_alive AND NOT is_used AND (next_due_at IS NULL OR next_due_at > now) AND newest <= %(newest)s FROM seen)

-- What a delivery is made of.
-- name: columns
seq, lane, id, payload, attempt, due_at, created_at, changed_at, retries, elapsed_s, tenant, "user", project, trace, is_suspect,
orphaned, has_notes, is_orphan, is_alone, blame, worker

-- What still runs under a token that this worker has used, in the order in which it was handed out.
-- name: held
SELECT :columns
FROM (
    SELECT job.*, one.place
    FROM holdfast_claims AS claim
    CROSS JOIN LATERAL unnest(claim.seqs) WITH ORDINALITY AS one (seq, place)
    JOIN holdfast_jobs AS job ON job.seq = one.seq
    WHERE claim.token = %(token)s AND claim.worker = %(worker)s
        AND job.state = 'running' AND job.token = %(token)s
) AS job
ORDER BY place

-- name: notes
SELECT seq, step, data FROM holdfast_notes WHERE seq = ANY (%(seqs)s::bigint[]) ORDER BY seq, step
