-- name: lanes_of
SELECT lane FROM holdfast_lanes WHERE :queue IN ('', queue) AND :task IN ('', task)

-- name: n_of_states
SELECT coalesce(sum(n), 0) FROM holdfast_tallies WHERE state IN (SELECT value FROM json_each(?))

-- name: n_of_lanes
SELECT coalesce(sum(n), 0) FROM holdfast_tallies
WHERE lane IN (SELECT value FROM carray(?)) AND state IN (SELECT value FROM json_each(?))

-- name: all
SELECT seq FROM holdfast_jobs WHERE seq < ? ORDER BY seq DESC LIMIT ?

-- name: given_up
SELECT seq FROM holdfast_jobs WHERE given_up = ? AND seq < ? ORDER BY seq DESC LIMIT ?

-- The few that are ready, or delayed, in another order than that of these indexes.
-- name: ready
SELECT seq FROM holdfast_jobs INDEXED BY holdfast_jobs_ready
WHERE is_ready = 1 AND +seq < :before :lanes_too ORDER BY +seq DESC LIMIT :limit

-- name: delayed
SELECT seq FROM holdfast_jobs INDEXED BY holdfast_jobs_delayed
WHERE wakes_at IS NOT NULL AND +seq < :before :lanes_too ORDER BY +seq DESC LIMIT :limit

-- name: claims
SELECT seqs FROM holdfast_claims WHERE held > 0

-- name: blocks
SELECT block FROM holdfast_marks WHERE name = ? AND block < ? ORDER BY block DESC LIMIT ?

-- name: n_of_marks
SELECT count(*) FROM (SELECT 1 FROM holdfast_marks WHERE name = ? LIMIT ?)

-- name: between
SELECT seq FROM holdfast_jobs WHERE seq BETWEEN ? AND ? ORDER BY seq DESC
