-- name: beat
INSERT INTO holdfast_workers (id, lease_until, seen_at, record) VALUES (%(worker)s, :now + %(lease_s)s, :now, %(record)s)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, seen_at = excluded.seen_at, record = excluded.record
    WHERE holdfast_workers.gone_at IS NULL
RETURNING id

-- name: leave
INSERT INTO holdfast_workers (id, lease_until, seen_at, gone_at, record) VALUES (%(worker)s, :now, :now, :now, %(record)s)
ON CONFLICT (id) DO UPDATE SET gone_at = excluded.gone_at WHERE holdfast_workers.gone_at IS NULL

-- name: cancelled
SELECT id FROM holdfast_cancelled WHERE worker = %(worker)s

-- name: forget_cancelled
DELETE FROM holdfast_cancelled WHERE worker = %(worker)s AND id = ANY (%(ids)s::text[])

-- name: held_by
SELECT token, held FROM holdfast_claims WHERE worker = %(worker)s AND held > 0

-- name: is_alive
SELECT EXISTS (SELECT 1 FROM holdfast_workers WHERE id = %(worker)s AND gone_at IS NULL),
    :is_used

-- A clock that went back, as after a failover, would keep the dead alive until it has come as far again: their leases
-- begin anew. Whoever is locked comes later, here and below: it may be by a heartbeat that its process cannot end.
-- name: mend_leases
UPDATE holdfast_workers SET lease_until = :now + lease_until - seen_at, seen_at = :now
WHERE id IN (
    SELECT id FROM holdfast_workers WHERE gone_at IS NULL AND seen_at > :now + 1 FOR UPDATE SKIP LOCKED
)

-- None, if the lease of the one who asks is over too.
-- name: give_up
UPDATE holdfast_workers SET gone_at = :now
WHERE id IN (
    SELECT id FROM holdfast_workers
    WHERE gone_at IS NULL AND id <> %(worker)s
        AND lease_until <= :now
        AND (SELECT lease_until FROM holdfast_workers WHERE id = %(worker)s) > :now
    FOR UPDATE SKIP LOCKED
)

-- A process that freezes while it sends leaves the server with half of a transaction, its locks and no time limit: that of
-- idle transactions begins only when all was received. So whoever looks for orphans ends such sessions of ours, if they
-- have written anything or have the lock of the values.
-- name: end_frozen
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user
    AND application_name = current_setting('application_name') AND query LIKE '%%holdfast%%'
    AND state = 'active' AND wait_event = 'ClientRead'
    AND (backend_xid IS NOT NULL OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'))
    AND xact_start < clock_timestamp() - current_setting('idle_in_transaction_session_timeout')::interval

-- What workers that are gone still hold, in the order in which they went; what one of them has locked in a transaction
-- that it cannot end comes later, and keeps back none of the others.
-- name: orphans
SELECT claim.token, one.seq
FROM holdfast_claims AS claim
JOIN holdfast_workers AS worker ON worker.id = claim.worker
CROSS JOIN LATERAL unnest(claim.seqs) WITH ORDINALITY AS one (seq, place)
JOIN holdfast_jobs AS job ON job.seq = one.seq
WHERE worker.gone_at IS NOT NULL AND claim.held > 0
    AND job.state = 'running' AND job.token = claim.token
ORDER BY worker.gone_at, worker.number, claim.number, one.place
LIMIT %(limit)s
FOR UPDATE OF claim, job SKIP LOCKED

-- name: adopt
WITH adopted AS (
    UPDATE holdfast_jobs AS job SET orphaned = orphaned + (NOT is_orphan)::int, is_orphan = true, token = %(token)s
    FROM unnest(%(seqs)s::bigint[], %(tokens)s::bytea[]) AS one (seq, token)
    WHERE job.seq = one.seq
        AND job.state = 'running' AND job.token = one.token
    RETURNING job.seq, one.token AS old
),
gone AS (
    UPDATE holdfast_claims AS claim SET held = claim.held - old.n
    FROM (SELECT old, count(*) AS n FROM adopted GROUP BY old) AS old WHERE claim.token = old.old
)
INSERT INTO holdfast_claims (token, worker, seqs, held)
SELECT %(token)s, %(worker)s, array_agg(seq), count(*) FROM adopted HAVING count(*) > 0

-- name: note
UPDATE holdfast_jobs
SET progress = coalesce(%(progress)s::float8, progress), blame = coalesce(%(blame)s::text, blame), has_notes = has_notes OR %(has_notes)s
WHERE id = %(id)s
    AND state = 'running' AND token = %(token)s
RETURNING seq

-- The row of the job is locked by now, so nobody else writes its notes.
-- name: forget_note
DELETE FROM holdfast_notes WHERE seq = %(seq)s AND step = %(step)s

-- name: add_note
INSERT INTO holdfast_notes (seq, step, data) VALUES (%(seq)s, %(step)s, %(data)s)

-- The latest claim of a worker stays, settled or not, for as long as the worker lives: it and those before it may come again.
-- Where it reclaimed, that has another beginning, and its latest stays as well.
-- name: sweep_claims
DELETE FROM holdfast_claims
WHERE held <= 0 AND number NOT IN (
    SELECT max(claim.number)
    FROM holdfast_claims AS claim JOIN holdfast_workers AS worker ON worker.id = claim.worker
    WHERE worker.gone_at IS NULL
    GROUP BY claim.worker, substr(claim.token, 1, 1)
)
