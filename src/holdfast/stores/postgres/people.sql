-- By the order of the table, as everybody else locks them. The lock needs a number of the transaction anyway.
-- name: look
SELECT pg_current_xact_id()::text, id, seq, lane, priority, due_at, state, token
FROM holdfast_jobs WHERE id = ANY (%(ids)s::text[]) ORDER BY seq FOR UPDATE

-- What became of a transaction; one that the server has not come to yet would be an error.
-- name: outcome
SELECT CASE WHEN %(number)s::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(%(number)s::xid8) END AS holdfast

-- name: replayed
SELECT seq FROM holdfast_replays WHERE seq = ANY (%(seqs)s::bigint[]) AND replay = %(replay)s

-- name: cancel
WITH clock AS MATERIALIZED (SELECT :now AS now),
done AS (
    UPDATE holdfast_jobs AS job
    SET state = 'cancelled', changed_at = now, given_up = 3, reason = %(reason)s,
        keep_until = now + CASE WHEN held_key IS NULL OR %(keep_s)s::float8 IS NULL THEN %(keep_s)s::float8 ELSE greatest(%(keep_s)s::float8, %(window_s)s) END,
        token = CASE WHEN state = 'running' THEN NULL ELSE token END,
        is_orphan = false, blame = ''
    FROM clock
    WHERE seq = ANY (%(seqs)s::bigint[]) AND state IN ('queued', 'retrying', 'waiting', 'running')
    RETURNING seq, keep_until
)
INSERT INTO holdfast_kept (keep_until, seqs)
SELECT keep_until, array_agg(seq) FROM done WHERE keep_until IS NOT NULL GROUP BY keep_until

-- First these, as somebody may be moving one of them to those that are ready.
-- name: forget_delayed
DELETE FROM holdfast_delayed AS delayed
USING unnest(%(dues)s::float8[], %(seqs)s::bigint[]) AS one (due_at, seq)
WHERE delayed.wakes_at = one.due_at AND delayed.seq = one.seq

-- name: forget_ready
DELETE FROM holdfast_ready AS ready
USING unnest(%(lanes)s::bigint[], %(priorities)s::bigint[], %(dues)s::float8[], %(seqs)s::bigint[]) AS one (lane, priority, due_at, seq)
WHERE ready.lane = one.lane AND ready.priority = one.priority AND ready.due_at = one.due_at AND ready.seq = one.seq

-- name: tell_holders
WITH told AS (
    SELECT claim.token, claim.worker, one.id
    FROM unnest(%(ids)s::text[], %(tokens)s::bytea[]) AS one (id, token)
    JOIN holdfast_claims AS claim ON claim.token = one.token
),
cancelled AS (
    INSERT INTO holdfast_cancelled (worker, id)
    SELECT told.worker, told.id FROM told JOIN holdfast_workers AS worker ON worker.id = told.worker WHERE worker.gone_at IS NULL
)
UPDATE holdfast_claims AS claim SET held = claim.held - gone.n
FROM (SELECT token, count(*) AS n FROM told GROUP BY token) AS gone WHERE claim.token = gone.token

-- They stand in line in the order of the ids: each is due a moment after the one before.
-- name: replay
WITH clock AS MATERIALIZED (SELECT :now AS now),
done AS (
    UPDATE holdfast_jobs AS job
    SET state = 'queued', changed_at = now, due_at = now + %(delay_s)s + 1e-6 * one.place, given_up = NULL, retries = 0, elapsed_s = 0,
        replays = replays + 1, reason = %(reason)s, keep_until = NULL,
        original_payload = CASE WHEN one.payload <> job.payload THEN coalesce(original_payload, job.payload) ELSE original_payload END,
        payload = coalesce(one.payload, job.payload)
    FROM clock, unnest(%(seqs)s::bigint[], %(payloads)s::bytea[]) WITH ORDINALITY AS one (seq, payload, place)
    WHERE job.seq = one.seq AND state = 'dead_letter'
    RETURNING job.seq, lane, priority, due_at
),
ready AS (
    INSERT INTO holdfast_ready (lane, priority, due_at, seq) SELECT lane, priority, due_at, seq FROM done WHERE %(delay_s)s = 0
)
INSERT INTO holdfast_delayed (wakes_at, lane, priority, seq) SELECT due_at, lane, priority, seq FROM done WHERE %(delay_s)s > 0

-- name: mark_replayed
INSERT INTO holdfast_replays (seq, replay) SELECT seq, %(replay)s FROM unnest(%(seqs)s::bigint[]) AS one (seq)

-- name: move
INSERT INTO holdfast_tallies (lane, state, n) SELECT * FROM unnest(%(lanes)s::bigint[], %(states)s::text[], %(ns)s::bigint[])

-- name: delete_jobs
DELETE FROM holdfast_jobs WHERE seq = ANY (%(seqs)s::bigint[])
    AND state IN ('completed', 'failed', 'dead_letter', 'cancelled')

-- name: delete_attempts
DELETE FROM holdfast_attempts WHERE seq = ANY (%(seqs)s::bigint[])

-- name: delete_notes
DELETE FROM holdfast_notes WHERE seq = ANY (%(seqs)s::bigint[])

-- name: delete_replays
DELETE FROM holdfast_replays WHERE seq = ANY (%(seqs)s::bigint[])
