-- name: over
SELECT json_group_array(json_array(seq, lane, state)) FROM (
    SELECT seq, lane, state FROM holdfast_jobs WHERE keep_until <= :now ORDER BY keep_until LIMIT :limit
)

-- name: delete_counts
DELETE FROM holdfast_counts WHERE minute > 0 AND minute < ?

-- A worker's id must not come back, so the row outlives it; long after nobody uses it any more.
-- name: delete_workers
DELETE FROM holdfast_workers
WHERE gone_at < ? AND NOT EXISTS (SELECT 1 FROM holdfast_claims WHERE worker = holdfast_workers.id AND held > 0)

-- name: delete_counted
DELETE FROM holdfast_counted WHERE worker NOT IN (SELECT id FROM holdfast_workers)

-- What was to be told to workers that are gone.
-- name: delete_cancelled
DELETE FROM holdfast_cancelled WHERE worker NOT IN (SELECT id FROM holdfast_workers WHERE gone_at IS NULL)

-- The newest stays, as the next version is counted from it.
-- name: delete_removed_values
DELETE FROM holdfast_values WHERE key IN (
    SELECT key FROM holdfast_values
    WHERE removed_at < ? AND version < (SELECT max(version) FROM holdfast_values)
    ORDER BY removed_at LIMIT ?
)
