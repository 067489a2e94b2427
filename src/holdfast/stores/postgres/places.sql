-- name: lanes_of
SELECT lane FROM holdfast_lanes WHERE %(queue)s IN ('', queue) AND %(task)s IN ('', task)

-- name: n_of_states
SELECT coalesce(sum(n), 0)::bigint FROM holdfast_tallies WHERE state = ANY (%(states)s::text[])

-- name: n_of_lanes
SELECT coalesce(sum(n), 0)::bigint FROM holdfast_tallies
WHERE lane = ANY (%(lanes)s::bigint[]) AND state = ANY (%(states)s::text[])

-- name: all
SELECT seq FROM holdfast_jobs WHERE seq < %(before)s ORDER BY seq DESC LIMIT %(limit)s

-- name: given_up
SELECT one.number, job.seq
FROM unnest(%(numbers)s::bigint[]) AS one (number)
CROSS JOIN LATERAL (
    SELECT seq FROM holdfast_jobs AS job
    WHERE given_up IS NOT NULL AND given_up = one.number AND seq < %(before)s ORDER BY seq DESC LIMIT %(limit)s
) AS job

-- name: of_lanes
SELECT one.lane, job.seq
FROM unnest(%(lanes)s::bigint[]) AS one (lane)
CROSS JOIN LATERAL (
    SELECT seq FROM holdfast_jobs AS job WHERE job.lane = one.lane AND seq < %(before)s ORDER BY seq DESC LIMIT %(limit)s
) AS job

-- name: of_owner
SELECT seq FROM holdfast_jobs
WHERE :column <> '' AND left(:column, 64) COLLATE "C" = left(%(owner)s, 64) AND seq < %(before)s ORDER BY seq DESC LIMIT %(limit)s

-- The few that are ready, or delayed, in another order than that of their indexes.
-- name: ready
SELECT seq FROM holdfast_ready WHERE seq < %(before)s AND (%(is_any)s OR lane = ANY (%(lanes)s::bigint[]))
ORDER BY seq DESC LIMIT %(limit)s

-- name: delayed
SELECT seq FROM holdfast_delayed WHERE seq < %(before)s AND (%(is_any)s OR lane = ANY (%(lanes)s::bigint[]))
ORDER BY seq DESC LIMIT %(limit)s

-- name: running
SELECT DISTINCT seq FROM holdfast_claims AS claim CROSS JOIN LATERAL unnest(claim.seqs) AS one (seq)
WHERE claim.held > 0 ORDER BY seq DESC
