-- One at a time, until the commit: so versions come to light in their order.
-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(%(store)s || ':values', 0)) AS holdfast

-- name: change
INSERT INTO holdfast_values (digest, key, version, data, removed_at)
SELECT %(digest)s, %(key)s, (SELECT coalesce(max(version), 0) + 1 FROM holdfast_values), %(data)s::bytea,
    CASE WHEN %(data)s::bytea IS NULL THEN :now END
WHERE %(expected)s = coalesce((SELECT version FROM holdfast_values WHERE digest = %(digest)s AND data IS NOT NULL), 0)
ON CONFLICT (digest) DO UPDATE SET version = excluded.version, data = excluded.data, removed_at = excluded.removed_at
RETURNING version

-- name: newer
SELECT key, version, data FROM holdfast_values WHERE version > %(seen)s ORDER BY version

-- name: count
INSERT INTO holdfast_counts (minute, task, name, n)
SELECT * FROM unnest(%(minutes)s::bigint[], %(tasks)s::text[], %(names)s::text[], %(ns)s::bigint[])

-- The same once under each name. One that comes again while the first is under way waits for its end.
-- name: count_once
WITH is_new AS (
    INSERT INTO holdfast_counted AS latest (worker, number) VALUES (%(worker)s, %(number)s)
    ON CONFLICT (worker) DO UPDATE SET number = excluded.number WHERE latest.number < excluded.number
    RETURNING number
)
INSERT INTO holdfast_counts (minute, task, name, n)
SELECT one.* FROM is_new, unnest(%(minutes)s::bigint[], %(tasks)s::text[], %(names)s::text[], %(ns)s::bigint[]) AS one

-- Changes add up: whoever comes by takes those that nobody else has in hand, and writes their sums. What stands alone stays.
-- name: sum_tallies
WITH several AS MATERIALIZED (
    SELECT lane, state FROM holdfast_tallies GROUP BY lane, state HAVING count(*) > 1 LIMIT %(limit)s
),
chosen AS MATERIALIZED (
    SELECT tally.ctid AS place FROM several JOIN holdfast_tallies AS tally USING (lane, state) FOR UPDATE OF tally SKIP LOCKED
),
gone AS (DELETE FROM holdfast_tallies WHERE ctid = ANY (ARRAY(SELECT place FROM chosen)) RETURNING lane, state, n)
INSERT INTO holdfast_tallies (lane, state, n) SELECT lane, state, sum(n) FROM gone GROUP BY lane, state HAVING sum(n) <> 0

-- name: sum_counts
WITH several AS MATERIALIZED (
    SELECT minute, task, name FROM holdfast_counts WHERE minute = 0 OR minute >= floor(:now / 60) - 60
    GROUP BY minute, task, name HAVING count(*) > 1 LIMIT %(limit)s
),
chosen AS MATERIALIZED (
    SELECT count.ctid AS place FROM several JOIN holdfast_counts AS count USING (minute, task, name)
    FOR UPDATE OF count SKIP LOCKED
),
gone AS (DELETE FROM holdfast_counts WHERE ctid = ANY (ARRAY(SELECT place FROM chosen)) RETURNING minute, task, name, n)
INSERT INTO holdfast_counts (minute, task, name, n) SELECT minute, task, name, sum(n) FROM gone GROUP BY minute, task, name

-- Those who wait for news are told, unless there is nobody.
-- name: notify
SELECT count(pg_notify(%(channel)s, '')) FROM (
    SELECT 1 FROM holdfast_listeners WHERE id <> %(listener)s AND until > :now LIMIT 1
) AS somebody

-- name: listen
INSERT INTO holdfast_listeners (id, until) VALUES (%(listener)s, :now + %(for_s)s)
ON CONFLICT (id) DO UPDATE SET until = excluded.until

-- name: listen_no_more
DELETE FROM holdfast_listeners WHERE id = %(listener)s
