-- name: look
SELECT seq, lane, state, token FROM holdfast_jobs WHERE id = ?

-- name: look_at_all
SELECT id, seq, lane, state FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: is_replayed
SELECT EXISTS (SELECT 1 FROM holdfast_replays WHERE seq = ? AND replay = ?)

-- name: cancel
UPDATE holdfast_jobs
SET state = 'cancelled', changed_at = :now, is_ready = NULL, wakes_at = NULL, given_up = 3, reason = :reason,
    keep_until = :now + CASE WHEN held_key IS NULL THEN :keep_s ELSE max(:keep_s, :window) END,
    token = CASE WHEN state = 'running' THEN NULL ELSE token END,
    is_orphan = 0, blame = ''
WHERE seq = :seq AND state IN ('queued', 'retrying', 'waiting', 'running')

-- name: tell_holder
INSERT OR IGNORE INTO holdfast_cancelled (worker, id)
SELECT claim.worker, :id
FROM holdfast_claims AS claim JOIN holdfast_workers AS worker ON worker.id = claim.worker
WHERE claim.token = :token AND worker.gone_at IS NULL

-- name: replay
UPDATE holdfast_jobs
SET state = 'queued', changed_at = :now, due_at = :now + :delay_s, given_up = NULL,
    is_ready = CASE WHEN :delay_s = 0 THEN 1 END, wakes_at = CASE WHEN :delay_s > 0 THEN :now + :delay_s END, retries = 0, elapsed_s = 0,
    replays = replays + 1, reason = :reason, keep_until = NULL,
    original_payload = CASE WHEN :payload <> payload THEN coalesce(original_payload, payload) ELSE original_payload END,
    payload = coalesce(:payload, payload)
WHERE seq = :seq AND state = 'dead_letter'

-- name: mark_replayed
INSERT INTO holdfast_replays (seq, replay) VALUES (?, ?)

-- name: delete_jobs
DELETE FROM holdfast_jobs WHERE seq IN (SELECT value FROM carray(:seqs))
    AND state IN ('completed', 'failed', 'dead_letter', 'cancelled')

-- name: delete_attempts
DELETE FROM holdfast_attempts WHERE seq IN (SELECT value FROM carray(:seqs))

-- name: delete_notes
DELETE FROM holdfast_notes WHERE seq IN (SELECT value FROM carray(:seqs))

-- name: delete_replays
DELETE FROM holdfast_replays WHERE seq IN (SELECT value FROM carray(:seqs))
