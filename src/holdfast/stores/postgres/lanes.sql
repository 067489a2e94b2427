-- Lanes are added one transaction after the other, so that nobody sees a number before a lower one.
-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(%(store)s || ':lanes', 0)) AS holdfast

-- name: add
INSERT INTO holdfast_lanes (queue, task, gates, digest)
SELECT * FROM unnest(%(queues)s::text[], %(tasks)s::text[], %(gates)s::text[], %(digests)s::bytea[])
ON CONFLICT (digest) DO NOTHING

-- name: find
SELECT digest, lane FROM holdfast_lanes WHERE digest = ANY (%(digests)s::bytea[])

-- name: state
SELECT coalesce((SELECT max(lane) FROM holdfast_lanes), 0),
    coalesce((SELECT value FROM holdfast_meta WHERE key = 'lanes_epoch'), '')

-- name: newer
SELECT lane, queue, task, gates FROM holdfast_lanes WHERE lane > %(after)s ORDER BY lane LIMIT %(limit)s

-- name: these
SELECT lane, queue, task, gates FROM holdfast_lanes WHERE lane = ANY (%(numbers)s::bigint[])

-- Steps from lane to lane in the index of ready jobs, without looking at the jobs between.
-- name: with_jobs
WITH RECURSIVE found (lane, n) AS (
    (SELECT lane, 1 FROM holdfast_ready WHERE lane > %(after)s ORDER BY lane, priority DESC, due_at, seq LIMIT 1)
    UNION ALL
    SELECT next.lane, found.n + 1 FROM found CROSS JOIN LATERAL (
        SELECT lane FROM holdfast_ready WHERE lane > found.lane ORDER BY lane, priority DESC, due_at, seq LIMIT 1
    ) AS next
    WHERE found.n < %(limit)s
)
SELECT lane FROM found

-- Lanes are swept some at a time: the last one of those that come next, and how many they are.
-- name: sweep_to
SELECT coalesce(max(lane), 0), count(*) FROM (
    SELECT lane FROM holdfast_lanes WHERE lane > %(after)s ORDER BY lane LIMIT %(limit)s
) AS next

-- Of these lanes, those without jobs: the tallies are written with the jobs, in one transaction.
-- name: empty
SELECT lane FROM holdfast_lanes
WHERE lane > %(after)s AND lane <= %(last)s
    AND lane NOT IN (SELECT lane FROM holdfast_tallies GROUP BY lane, state HAVING sum(n) <> 0)

-- Whoever adds jobs to a lane reads this table first, and so holds a lock on it until the jobs are committed.
-- name: stop_enqueuers
LOCK TABLE holdfast_lanes IN ACCESS EXCLUSIVE MODE

-- name: drop
WITH empty AS MATERIALIZED (
    SELECT lane FROM unnest(%(lanes)s::bigint[]) AS one (lane)
    WHERE lane NOT IN (SELECT lane FROM holdfast_tallies GROUP BY lane, state HAVING sum(n) <> 0)
),
tallies AS (DELETE FROM holdfast_tallies WHERE lane IN (SELECT lane FROM empty))
DELETE FROM holdfast_lanes WHERE lane IN (SELECT lane FROM empty)

-- name: begin_epoch
INSERT INTO holdfast_meta (key, value) VALUES ('lanes_epoch', %(epoch)s)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
