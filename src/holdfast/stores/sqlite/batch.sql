-- name: add_tallies
INSERT INTO holdfast_tallies (lane, state, n)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?) WHERE true
ON CONFLICT (lane, state) DO UPDATE SET n = n + excluded.n

-- New claims, and fewer held under old ones.
-- name: add_claims
INSERT INTO holdfast_claims (token, worker, seqs, held)
SELECT unhex(value ->> 0), value ->> 1, unhex(value ->> 2), value ->> 3 FROM json_each(?) WHERE true
ON CONFLICT (token) DO UPDATE SET held = held + excluded.held

-- The latest claim of a worker stays, settled or not, for as long as the worker lives: it and those before it may come again.
-- Where it reclaimed, that has another beginning, and its latest stays as well.
-- name: sweep_claims
DELETE FROM holdfast_claims
WHERE held <= 0 AND number NOT IN (
    SELECT max(claim.number)
    FROM holdfast_claims AS claim JOIN holdfast_workers AS worker ON worker.id = claim.worker
    WHERE worker.gone_at IS NULL
    GROUP BY claim.worker, substr(claim.token, 1, 1)
)
