-- name: add
INSERT INTO holdfast_lanes (queue, task, gates) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: find
SELECT lane FROM holdfast_lanes WHERE queue = ? AND task = ? AND gates = ?

-- Changes whenever lanes were dropped.
-- name: epoch
SELECT coalesce((SELECT value FROM holdfast_meta WHERE key = 'lanes_epoch'), '')

-- name: state
SELECT coalesce(max(lane), 0), coalesce((SELECT value FROM holdfast_meta WHERE key = 'lanes_epoch'), '') FROM holdfast_lanes

-- name: newer
SELECT lane, queue, task, gates FROM holdfast_lanes WHERE lane > ? ORDER BY lane LIMIT ?

-- name: these
SELECT lane, queue, task, gates FROM holdfast_lanes WHERE lane IN (SELECT value FROM carray(?))

-- Steps from lane to lane in the index of ready jobs, without looking at the jobs between.
-- name: with_jobs
WITH RECURSIVE found (lane) AS (
    SELECT min(lane) FROM holdfast_jobs WHERE is_ready = 1 AND lane > ?1
    UNION ALL
    SELECT (SELECT min(lane) FROM holdfast_jobs WHERE is_ready = 1 AND lane > found.lane) FROM found WHERE lane IS NOT NULL
)
SELECT json_group_array(lane) FROM (SELECT lane FROM found WHERE lane IS NOT NULL LIMIT ?2)

-- Lanes are swept some at a time: the last one of those that come next.
-- name: sweep_to
SELECT max(lane), count(*) FROM (SELECT lane FROM holdfast_lanes WHERE lane > ? ORDER BY lane LIMIT ?)

-- name: drop_tallies
DELETE FROM holdfast_tallies WHERE lane > ? AND lane <= ? AND n = 0

-- A lane without a tally has no job: the tallies are written with the jobs, in one transaction.
-- name: drop
DELETE FROM holdfast_lanes
WHERE lane > ? AND lane <= ? AND NOT EXISTS (SELECT 1 FROM holdfast_tallies AS tally WHERE tally.lane = holdfast_lanes.lane)

-- A name by chance: it must not come twice, also when the transaction that set it is rolled back.
-- name: begin_epoch
INSERT OR REPLACE INTO holdfast_meta (key, value) VALUES ('lanes_epoch', ?)
