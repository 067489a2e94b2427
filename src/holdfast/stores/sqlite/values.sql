-- name: change
INSERT INTO holdfast_values (key, version, data, removed_at)
SELECT :key, (SELECT coalesce(max(version), 0) + 1 FROM holdfast_values), :data, CASE WHEN :data IS NULL THEN :now END
WHERE :expected = coalesce((SELECT version FROM holdfast_values WHERE key = :key AND data IS NOT NULL), 0)
ON CONFLICT (key) DO UPDATE SET version = excluded.version, data = excluded.data, removed_at = excluded.removed_at

-- name: newest
SELECT coalesce(max(version), 0) FROM holdfast_values

-- name: newer
SELECT json_group_array(json_array(key, version, hex_or_null)) FROM (
    SELECT key, version, CASE WHEN data IS NOT NULL THEN hex(data) END AS hex_or_null
    FROM holdfast_values WHERE version > ? ORDER BY version
)

-- name: is_new
INSERT INTO holdfast_counted (worker, number) VALUES (?, ?)
ON CONFLICT (worker) DO UPDATE SET number = excluded.number WHERE number < excluded.number

-- name: count
INSERT INTO holdfast_counts (minute, task, name, n)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?) WHERE true
ON CONFLICT (minute, task, name) DO UPDATE SET n = n + excluded.n
