-- The row stands there as often as there are jobs.
-- name: insert
INSERT INTO holdfast_jobs (
    id, lane, priority, due_at, created_at, changed_at, is_ready, wakes_at,
    tenant, user, project, trace, payload, held_key, idempotency_key
)
VALUES (:row)
ON CONFLICT (id) DO NOTHING

-- name: known
SELECT json_group_array(json_array(id, state)) FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?1))

-- With the lane of those that were added just now.
-- name: known_or_added
SELECT json_group_array(json_array(id, state, CASE WHEN created_at = ?2 THEN lane END)) FROM holdfast_jobs
WHERE id IN (SELECT value FROM json_each(?1))

-- name: holders
SELECT
    held_key, id, coalesce(original_payload, payload),
    CASE WHEN state IN ('completed', 'failed', 'dead_letter', 'cancelled') THEN changed_at END,
    state
FROM holdfast_jobs WHERE held_key IN (SELECT value FROM json_each(?))

-- name: free_keys
UPDATE holdfast_jobs SET held_key = NULL WHERE held_key IN (SELECT value FROM json_each(?))
