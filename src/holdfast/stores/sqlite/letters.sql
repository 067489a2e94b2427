-- name: count_causes
INSERT INTO holdfast_causes (fingerprint, queue, task, tenant, failure_type, n)
SELECT job.fingerprint, lane.queue, lane.task, job.tenant, coalesce(job.failure_type, ''), count(*)
FROM json_each(:ids) AS one
CROSS JOIN holdfast_jobs AS job ON job.id = one.value
CROSS JOIN holdfast_lanes AS lane ON lane.lane = job.lane
WHERE true
GROUP BY 1, 2, 3, 4, 5
ON CONFLICT (fingerprint, queue, task, tenant, failure_type) DO UPDATE SET n = n + excluded.n

-- name: add
INSERT INTO holdfast_letters (seq, cause, ended_at, fingerprint)
SELECT job.seq, cause.cause, job.changed_at, job.fingerprint
FROM json_each(:ids) AS one
CROSS JOIN holdfast_jobs AS job ON job.id = one.value
CROSS JOIN holdfast_lanes AS lane ON lane.lane = job.lane
CROSS JOIN holdfast_causes AS cause ON cause.fingerprint = job.fingerprint AND cause.queue = lane.queue
    AND cause.task = lane.task AND cause.tenant = job.tenant AND cause.failure_type = coalesce(job.failure_type, '')
RETURNING cause, ended_at

-- name: count_hours
INSERT INTO holdfast_letter_hours (hour, cause, n)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?) WHERE true
ON CONFLICT (hour, cause) DO UPDATE SET n = n + excluded.n

-- name: forget
DELETE FROM holdfast_letters WHERE seq IN (SELECT value FROM carray(?)) RETURNING cause, ended_at

-- name: uncount_hours
UPDATE holdfast_letter_hours AS hour SET n = n - (one.value ->> 2)
FROM json_each(?) AS one
WHERE hour.hour = one.value ->> 0 AND hour.cause = one.value ->> 1

-- name: drop_hours
DELETE FROM holdfast_letter_hours
WHERE n <= 0 AND (hour, cause) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))

-- name: uncount_causes
UPDATE holdfast_causes AS cause SET n = n - (one.value ->> 1)
FROM json_each(?) AS one
WHERE cause.cause = one.value ->> 0

-- name: drop_causes
DELETE FROM holdfast_causes WHERE n <= 0 AND cause IN (SELECT value ->> 0 FROM json_each(?))

-- name: drop_old_hours
DELETE FROM holdfast_letter_hours WHERE hour < ?

-- name: add_mark
INSERT OR IGNORE INTO holdfast_marks (name, block) VALUES (?, ?)

-- Marks are looked at some at a time, from one on; those of a block without jobs go.
-- name: marks_after
SELECT name, block, EXISTS (SELECT 1 FROM holdfast_jobs WHERE seq BETWEEN block << 8 AND (block << 8) + 255)
FROM holdfast_marks WHERE (name, block) > (?, ?) ORDER BY name, block LIMIT ?

-- name: drop_mark
DELETE FROM holdfast_marks WHERE name = ? AND block = ?

-- What there is of each fingerprint, with the last letter of it.
-- name: wholes
SELECT part.fingerprint, part.tasks, part.tenants, part.n,
    (SELECT min(ended_at) FROM holdfast_letters WHERE fingerprint = part.fingerprint),
    letter.ended_at, letter.seq
FROM (
    SELECT fingerprint, json_group_array(DISTINCT task) AS tasks, json_group_array(DISTINCT tenant) AS tenants, sum(n) AS n
    FROM holdfast_causes AS cause WHERE :where GROUP BY fingerprint
) AS part
CROSS JOIN holdfast_letters AS letter ON letter.seq = (
    SELECT seq FROM holdfast_letters WHERE fingerprint = part.fingerprint ORDER BY ended_at DESC, seq DESC LIMIT 1
)

-- The same of each cause.
-- name: causes
SELECT cause.fingerprint, json_array(cause.task), json_array(cause.tenant), cause.n,
    (SELECT min(ended_at) FROM holdfast_letters WHERE cause = cause.cause),
    letter.ended_at, letter.seq
FROM holdfast_causes AS cause
CROSS JOIN holdfast_letters AS letter ON letter.seq = (
    SELECT seq FROM holdfast_letters WHERE cause = cause.cause ORDER BY ended_at DESC, seq DESC LIMIT 1
)
WHERE :where

-- The same of those letters alone that were given up within a time.
-- name: causes_within
SELECT cause.fingerprint, json_array(cause.task), json_array(cause.tenant), part.n, part.first_at, part.last_at,
    (SELECT max(seq) FROM holdfast_letters WHERE cause = cause.cause AND ended_at = part.last_at)
FROM (
    SELECT cause, count(*) AS n, min(ended_at) AS first_at, max(ended_at) AS last_at
    FROM holdfast_letters WHERE ended_at >= :since AND ended_at < :until GROUP BY cause
) AS part
CROSS JOIN holdfast_causes AS cause ON cause.cause = part.cause
WHERE :where

-- name: hours
SELECT cause.fingerprint, hour.hour, sum(hour.n)
FROM holdfast_letter_hours AS hour CROSS JOIN holdfast_causes AS cause ON cause.cause = hour.cause
WHERE hour.hour >= :first AND :where
GROUP BY 1, 2

-- name: hours_within
SELECT cause.fingerprint, part.hour, sum(part.n)
FROM (
    SELECT cause, CAST(ended_at / 3600 AS INTEGER) AS hour, count(*) AS n FROM holdfast_letters
    WHERE ended_at >= max(:since, 3600 * :first) AND ended_at < :until GROUP BY 1, 2
) AS part
CROSS JOIN holdfast_causes AS cause ON cause.cause = part.cause
WHERE :where
GROUP BY 1, 2

-- name: bounds
SELECT min(ended_at), (SELECT max(ended_at) FROM holdfast_letters) FROM holdfast_letters

-- name: causes_like
SELECT cause.cause FROM holdfast_causes AS cause WHERE :where LIMIT :limit

-- name: of_cause
SELECT seq FROM holdfast_letters WHERE cause = ? AND seq < ? ORDER BY seq DESC LIMIT ?

-- name: within
SELECT seq FROM holdfast_letters WHERE ended_at >= coalesce(?, 0) AND ended_at < coalesce(?, 9e99) LIMIT ?
