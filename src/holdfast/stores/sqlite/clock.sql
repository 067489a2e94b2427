-- name: base_of
SELECT base FROM holdfast_clock WHERE boot = ?

-- name: last_instant
SELECT max(
    coalesce((SELECT max(seen_at) FROM holdfast_workers), 0),
    coalesce((SELECT max(created_at, changed_at) FROM holdfast_jobs ORDER BY seq DESC LIMIT 1), 0),
    coalesce((SELECT value FROM holdfast_meta WHERE key = 'closed_at'), 0)
)

-- name: forget_bases
DELETE FROM holdfast_clock

-- name: set_base
INSERT INTO holdfast_clock (boot, base) VALUES (?, ?)

-- name: set_closed_at
INSERT OR REPLACE INTO holdfast_meta (key, value) VALUES ('closed_at', ?)
