-- name: beat
INSERT INTO holdfast_workers (id, lease_until, seen_at, record) VALUES (:id, :now + :lease_s, :now, :record)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, seen_at = excluded.seen_at, record = excluded.record
    WHERE gone_at IS NULL

-- name: leave
INSERT INTO holdfast_workers (id, lease_until, seen_at, gone_at, record) VALUES (:id, :now, :now, :now, :record)
ON CONFLICT (id) DO UPDATE SET gone_at = excluded.gone_at WHERE gone_at IS NULL

-- name: tell_cancelled
DELETE FROM holdfast_cancelled WHERE worker = ? RETURNING id

-- name: held_by
SELECT token, held FROM holdfast_claims WHERE worker = ? AND held > 0

-- name: is_alive
SELECT
    EXISTS (SELECT 1 FROM holdfast_workers WHERE id = :worker AND gone_at IS NULL),
    EXISTS (
        SELECT 1 FROM holdfast_claims
        WHERE token >= :token AND (token = :token OR worker = :worker AND substr(token, 1, 1) = substr(:token, 1, 1))
    )

-- name: alive
SELECT id FROM holdfast_workers WHERE gone_at IS NULL

-- Whoever's own lease is over tells of nobody else's, but still of the dead.
-- name: give_up
UPDATE holdfast_workers SET gone_at = :now
WHERE gone_at IS NULL AND id <> :by AND (
    (lease_until <= :now AND (SELECT lease_until FROM holdfast_workers WHERE id = :by) > :now)
    OR id IN (SELECT value FROM json_each(:dead))
)

-- name: given_up
SELECT id FROM holdfast_workers WHERE gone_at = :now

-- What workers that are gone still hold, in the order in which they went.
-- name: orphans
SELECT claim.token, claim.seqs
FROM holdfast_claims AS claim JOIN holdfast_workers AS worker ON worker.id = claim.worker
WHERE worker.gone_at IS NOT NULL AND claim.held > 0
ORDER BY worker.gone_at, worker.number, claim.number

-- name: held
SELECT json_group_array(seq) FROM carray(:seqs) AS one
CROSS JOIN holdfast_jobs AS job ON job.seq = one.value
WHERE state = 'running' AND token = :token

-- name: adopt
UPDATE holdfast_jobs SET orphaned = orphaned + (is_orphan = 0), is_orphan = 1, token = :new
WHERE seq IN (SELECT value FROM carray(:seqs))
    AND state = 'running' AND token = :old

-- name: note
UPDATE holdfast_jobs
SET progress = coalesce(:progress, progress), blame = coalesce(:blame, blame), has_notes = max(has_notes, :has_notes)
WHERE id = :id
    AND state = 'running' AND token = :token

-- name: add_note
INSERT OR REPLACE INTO holdfast_notes (seq, step, data) SELECT seq, :step, :data FROM holdfast_jobs WHERE id = :id
