-- name: add
INSERT INTO holdfast_lanes (queue, task, gates) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: find
SELECT lane FROM holdfast_lanes WHERE queue = ? AND task = ? AND gates = ?

-- name: newest
SELECT coalesce(max(lane), 0) FROM holdfast_lanes

-- name: newer
SELECT lane, queue, task, gates FROM holdfast_lanes WHERE lane > ? ORDER BY lane

-- Steps from lane to lane in the index of ready jobs, without looking at the jobs between.
-- name: with_jobs
WITH RECURSIVE found (lane) AS (
    SELECT min(lane) FROM holdfast_jobs WHERE is_ready = 1 AND lane > ?1
    UNION ALL
    SELECT (SELECT min(lane) FROM holdfast_jobs WHERE is_ready = 1 AND lane > found.lane) FROM found WHERE lane IS NOT NULL
)
SELECT json_group_array(lane) FROM (SELECT lane FROM found WHERE lane IS NOT NULL LIMIT ?2)
