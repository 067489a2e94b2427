-- name: look
SELECT json_group_array(json_array(id, seq, lane, state, hex(token), changed_at, settled, attempt, started_at, worker))
FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?))

-- Whoever holds the lease loses it: no token is right from now on, nor the one of an earlier settlement.
-- Values: 0 id, 1 state, 2 settled, 3 given_up, 4 result, 5 keep_s, 6 reason, 7 started_at, 8 attempt, 9 worker, 10 is_failure,
-- 11 failure_type, 12 severity, 13 error_name, 14 message, 15 fingerprint, 16 failed_at, 17 first_failed_at,
-- 18 the state before.
-- name: end
UPDATE holdfast_jobs AS job
SET state = one.value ->> 1, changed_at = :now, settled = one.value ->> 2, settled_token = NULL, token = NULL,
    is_ready = NULL, wakes_at = NULL,
    given_up = one.value ->> 3,
    result = unhex(one.value ->> 4),
    keep_until = :now + CASE WHEN held_key IS NULL THEN one.value ->> 5 ELSE max(one.value ->> 5, :window) END,
    reason = one.value ->> 6,
    started_at = coalesce(one.value ->> 7, started_at),
    attempt = max(attempt, one.value ->> 8),
    worker = coalesce(one.value ->> 9, worker),
    elapsed_s = 0, is_suspect = 0, is_orphan = 0, orphaned = 0, blame = '',
    has_notes = CASE WHEN one.value ->> 1 = 'completed' THEN 0 ELSE has_notes END,
    failure_type = CASE WHEN one.value ->> 10 THEN one.value ->> 11 ELSE failure_type END,
    severity = CASE WHEN one.value ->> 10 THEN one.value ->> 12 ELSE severity END,
    error_name = CASE WHEN one.value ->> 10 THEN one.value ->> 13 ELSE error_name END,
    message = CASE WHEN one.value ->> 10 THEN one.value ->> 14 ELSE message END,
    fingerprint = CASE WHEN one.value ->> 10 THEN one.value ->> 15 ELSE fingerprint END,
    last_failed_at = CASE WHEN one.value ->> 10 THEN one.value ->> 16 ELSE last_failed_at END,
    first_failed_at = coalesce(first_failed_at, one.value ->> 17)
FROM json_each(:rows) AS one
WHERE job.id = one.value ->> 0
    AND state = one.value ->> 18
