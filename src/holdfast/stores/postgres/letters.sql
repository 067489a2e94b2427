-- These are dead letters no more: what is counted of them goes with them.
-- name: forget
WITH gone AS (
    DELETE FROM holdfast_letters WHERE seq = ANY (%(seqs)s::bigint[]) RETURNING cause, ended_at
),
hours AS (
    INSERT INTO holdfast_letter_hours (hour, cause, n) SELECT floor(ended_at / 3600), cause, -count(*) FROM gone GROUP BY 1, 2
)
INSERT INTO holdfast_causes (cause, n) SELECT cause, -count(*) FROM gone GROUP BY cause

-- name: drop_old_hours
DELETE FROM holdfast_letter_hours WHERE hour < floor(:now / 3600) - %(hours)s

-- Changes add up, as those of tallies do. Whatever is above zero has a letter that came, and so the texts. The causes are an
-- array, as a join would go through the table once for each of them, while the server thinks that it is small.
-- name: sum_causes
WITH chosen AS MATERIALIZED (
    SELECT ctid AS place FROM holdfast_causes
    WHERE cause = ANY (ARRAY(SELECT cause FROM holdfast_causes GROUP BY cause HAVING count(*) > 1 LIMIT %(limit)s))
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM holdfast_causes WHERE ctid = ANY (ARRAY(SELECT place FROM chosen)) RETURNING *)
INSERT INTO holdfast_causes (cause, fingerprint, queue, task, tenant, failure_type, n)
SELECT cause, max(fingerprint), max(queue), max(task), max(tenant), max(failure_type), sum(n)
FROM gone GROUP BY cause HAVING sum(n) <> 0

-- name: sum_hours
WITH chosen AS MATERIALIZED (
    SELECT ctid AS place FROM holdfast_letter_hours
    WHERE cause = ANY (ARRAY(SELECT cause FROM holdfast_letter_hours GROUP BY hour, cause HAVING count(*) > 1 LIMIT %(limit)s))
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM holdfast_letter_hours WHERE ctid = ANY (ARRAY(SELECT place FROM chosen)) RETURNING hour, cause, n)
INSERT INTO holdfast_letter_hours (hour, cause, n) SELECT hour, cause, sum(n) FROM gone GROUP BY hour, cause HAVING sum(n) <> 0

-- What there is of each cause.
-- name: sums
SELECT cause, max(fingerprint) AS fingerprint, max(queue) AS queue, max(task) AS task, max(tenant) AS tenant,
    max(failure_type) AS failure_type, sum(n)::bigint AS n
FROM holdfast_causes GROUP BY cause HAVING sum(n) > 0

-- What there is of each fingerprint, with the first and the last letter of it.
-- name: wholes
SELECT part.fingerprint, part.tasks, part.tenants, part.n, first.ended_at, last.ended_at, last.seq
FROM (
    SELECT fingerprint, holdfast_digest(fingerprint) AS digest, array_agg(DISTINCT task) AS tasks,
        array_agg(DISTINCT tenant) AS tenants, sum(n)::bigint AS n
    FROM (:sums) AS cause WHERE :where GROUP BY fingerprint
) AS part
CROSS JOIN LATERAL (
    SELECT ended_at FROM holdfast_letters AS letter WHERE letter.fingerprint = part.digest ORDER BY ended_at, seq LIMIT 1
) AS first
CROSS JOIN LATERAL (
    SELECT ended_at, seq FROM holdfast_letters AS letter
    WHERE letter.fingerprint = part.digest ORDER BY ended_at DESC, seq DESC LIMIT 1
) AS last

-- The same of each cause.
-- name: causes
SELECT cause.fingerprint, ARRAY[cause.task], ARRAY[cause.tenant], cause.n, first.ended_at, last.ended_at, last.seq
FROM (:sums) AS cause
CROSS JOIN LATERAL (
    SELECT ended_at FROM holdfast_letters AS letter WHERE letter.cause = cause.cause ORDER BY ended_at, seq LIMIT 1
) AS first
CROSS JOIN LATERAL (
    SELECT ended_at, seq FROM holdfast_letters AS letter WHERE letter.cause = cause.cause ORDER BY ended_at DESC, seq DESC LIMIT 1
) AS last
WHERE :where

-- The same of those letters alone that were given up within a time.
-- name: causes_within
SELECT cause.fingerprint, ARRAY[cause.task], ARRAY[cause.tenant], part.n, part.first_at, part.last_at, last.seq
FROM (
    SELECT cause, count(*) AS n, min(ended_at) AS first_at, max(ended_at) AS last_at
    FROM holdfast_letters WHERE ended_at >= %(since)s AND ended_at < %(until)s GROUP BY cause
) AS part
JOIN (:sums) AS cause ON cause.cause = part.cause
CROSS JOIN LATERAL (
    SELECT seq FROM holdfast_letters AS letter
    WHERE letter.cause = part.cause AND ended_at = part.last_at ORDER BY ended_at DESC, seq DESC LIMIT 1
) AS last
WHERE :where

-- name: hours
SELECT cause.fingerprint, part.hour, sum(part.n)::bigint
FROM (SELECT hour, cause, sum(n) AS n FROM holdfast_letter_hours WHERE hour >= %(first)s GROUP BY 1, 2) AS part
JOIN (:sums) AS cause ON cause.cause = part.cause
WHERE :where
GROUP BY 1, 2

-- name: hours_within
SELECT cause.fingerprint, part.hour, sum(part.n)::bigint
FROM (
    SELECT cause, floor(ended_at / 3600)::bigint AS hour, count(*) AS n FROM holdfast_letters
    WHERE ended_at >= greatest(%(since)s, 3600 * %(first)s) AND ended_at < %(until)s GROUP BY 1, 2
) AS part
JOIN (:sums) AS cause ON cause.cause = part.cause
WHERE :where
GROUP BY 1, 2

-- name: bounds
SELECT :now, (SELECT min(ended_at) FROM holdfast_letters), (SELECT max(ended_at) FROM holdfast_letters)

-- name: causes_like
SELECT cause FROM (:sums) AS cause WHERE :where LIMIT %(limit)s

-- name: of_causes
SELECT one.cause, letter.seq
FROM unnest(%(causes)s::bytea[]) AS one (cause)
CROSS JOIN LATERAL (
    SELECT seq FROM holdfast_letters AS letter
    WHERE letter.cause = one.cause AND letter.seq < %(before)s ORDER BY seq DESC LIMIT %(limit)s
) AS letter

-- name: within
SELECT seq FROM holdfast_letters
WHERE ended_at >= coalesce(%(since)s::float8, 0) AND ended_at < coalesce(%(until)s::float8, 9e99) LIMIT %(limit)s
