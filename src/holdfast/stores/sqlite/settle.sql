-- A record is kept as long as its idempotency key holds. The fence of every settlement is the line with the token: a stale holder changes nothing.

-- Values: 0 id, 1 token, 2 result, 3 elapsed_s, 4 started_at, 5 keep_s.
-- name: complete
UPDATE holdfast_jobs AS job
SET state = 'completed', changed_at = :now, settled = 1, settled_token = token, retries = retries + 1,
    result = unhex(one.value ->> 2),
    elapsed_s = one.value ->> 3,
    started_at = coalesce(one.value ->> 4, started_at),
    keep_until = :now + CASE WHEN held_key IS NULL THEN one.value ->> 5 ELSE max(one.value ->> 5, :window) END,
    reason = '', is_suspect = 0, is_orphan = 0, orphaned = 0, blame = '', has_notes = 0
FROM json_each(:rows) AS one
WHERE job.id = one.value ->> 0
    AND state = 'running' AND token = unhex(one.value ->> 1)

-- Values: 0 id, 1 token, 2 result, 3 elapsed_s, 4 started_at, 5 keep_s, 6 state, 7 settled, 8 reason, 9 delay_s, 10 given_up,
-- 11 counts, 12 is_suspect, 13 is_release, 14 is_failure, 15 failure_type, 16 severity, 17 error_name, 18 message,
-- 19 fingerprint, 20 failed_at.
-- name: settle
UPDATE holdfast_jobs AS job
SET state = one.value ->> 6, changed_at = :now, settled = one.value ->> 7, settled_token = token, retries = retries + (one.value ->> 11),
    attempt = attempt - 1 + (one.value ->> 11),
    result = unhex(one.value ->> 2),
    elapsed_s = one.value ->> 3,
    started_at = coalesce(one.value ->> 4, started_at),
    keep_until = :now + CASE WHEN held_key IS NULL THEN one.value ->> 5 ELSE max(one.value ->> 5, :window) END,
    reason = one.value ->> 8,
    due_at = CASE WHEN one.value ->> 13 AND one.value ->> 9 = 0 THEN due_at ELSE coalesce(:now + (one.value ->> 9), due_at) END,
    is_ready = CASE WHEN one.value ->> 9 = 0 THEN 1 END,
    wakes_at = CASE WHEN one.value ->> 9 > 0 THEN :now + (one.value ->> 9) END,
    given_up = one.value ->> 10,
    is_suspect = one.value ->> 12,
    orphaned = CASE WHEN one.value ->> 13 THEN orphaned ELSE 0 END,
    is_orphan = 0, blame = '',
    has_notes = CASE WHEN one.value ->> 6 = 'completed' THEN 0 ELSE has_notes END,
    failure_type = CASE WHEN one.value ->> 14 THEN one.value ->> 15 ELSE failure_type END,
    severity = CASE WHEN one.value ->> 14 THEN one.value ->> 16 ELSE severity END,
    error_name = CASE WHEN one.value ->> 14 THEN one.value ->> 17 ELSE error_name END,
    message = CASE WHEN one.value ->> 14 THEN one.value ->> 18 ELSE message END,
    fingerprint = CASE WHEN one.value ->> 14 THEN one.value ->> 19 ELSE fingerprint END,
    last_failed_at = CASE WHEN one.value ->> 14 THEN one.value ->> 20 ELSE last_failed_at END,
    first_failed_at = CASE WHEN one.value ->> 14 THEN coalesce(first_failed_at, one.value ->> 20) ELSE first_failed_at END
FROM json_each(:rows) AS one
WHERE job.id = one.value ->> 0
    AND state = 'running' AND token = unhex(one.value ->> 1)

-- name: lanes
SELECT json_group_array(json_array(id, lane)) FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?))

-- Where each of these stands after the change: 0 its place in the list, 1 lane, 2 whether it took effect just now.
-- name: outcome
SELECT json_group_array(json_array(
    one.value ->> 0, job.lane,
    coalesce(job.changed_at = :now AND job.token = unhex(one.value ->> 2) AND job.state <> 'running', 0)
))
FROM json_each(:rows) AS one
CROSS JOIN holdfast_jobs AS job ON job.id = one.value ->> 1
WHERE job.settled = one.value ->> 3 AND job.settled_token = unhex(one.value ->> 2)

-- name: add_attempts
INSERT INTO holdfast_attempts (seq, record)
SELECT job.seq, CAST(one.value ->> 1 AS BLOB)
FROM json_each(?) AS one
CROSS JOIN holdfast_jobs AS job ON job.id = one.value ->> 0
ORDER BY one.key
