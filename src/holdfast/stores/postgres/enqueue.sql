-- Nothing is added when one of the lanes was dropped meanwhile; whoever reads the lanes here keeps them from being dropped
-- until its jobs are committed. The last column tells those who wait.
-- name: insert
WITH clock AS MATERIALIZED (SELECT :now AS now),
added AS (
    INSERT INTO holdfast_jobs (
        id, lane, priority, due_at, created_at, changed_at, payload, tenant, "user", project, trace, held_key, idempotency_key
    )
    SELECT id, lane, priority, now + delay_s, now, now, payload, tenant, "user", project, trace, held_key, idempotency_key
    FROM clock, unnest(
        %(ids)s::text[], %(lanes)s::bigint[], %(priorities)s::bigint[], %(delays)s::float8[], %(payloads)s::bytea[],
        %(tenants)s::text[], %(users)s::text[], %(projects)s::text[], %(traces)s::text[],
        %(held_keys)s::bytea[], %(keys)s::text[]
    ) WITH ORDINALITY AS one (
        id, lane, priority, delay_s, payload, tenant, "user", project, trace, held_key, idempotency_key, place
    )
    WHERE (SELECT count(*) FROM holdfast_lanes WHERE lane = ANY (%(all_lanes)s::bigint[])) = %(n_lanes)s
    ORDER BY place
    ON CONFLICT DO NOTHING
    RETURNING seq, id, lane, priority, due_at, created_at
),
ready AS (
    INSERT INTO holdfast_ready (lane, priority, due_at, seq)
    SELECT lane, priority, due_at, seq FROM added WHERE due_at <= created_at
),
delayed AS (
    INSERT INTO holdfast_delayed (wakes_at, lane, priority, seq)
    SELECT due_at, lane, priority, seq FROM added WHERE due_at > created_at
),
tallies AS (
    INSERT INTO holdfast_tallies (lane, state, n) SELECT lane, 'queued', count(*) FROM added GROUP BY lane
)
SELECT
    (SELECT count(*) FROM added),
    (SELECT count(*) FROM holdfast_lanes WHERE lane = ANY (%(all_lanes)s::bigint[])) = %(n_lanes)s,
    CASE WHEN (SELECT count(*) FROM added) < %(n)s THEN ARRAY(SELECT id FROM added) END,
    (SELECT count(pg_notify(%(channel)s, '')) FROM (
        SELECT 1 FROM holdfast_listeners WHERE id <> %(listener)s AND until > (SELECT now FROM clock) LIMIT 1
    ) AS somebody)

-- One job that is ready at once and has no idempotency key: the same with less work. No row says that it was not added.
-- name: insert_one
WITH added AS (
    INSERT INTO holdfast_jobs (id, lane, priority, due_at, created_at, changed_at, payload, tenant, "user", project, trace)
    SELECT %(id)s, lane.lane, %(priority)s, now, now, now, %(payload)s, %(tenant)s, %(user)s, %(project)s, %(trace)s
    FROM (SELECT :now AS now) AS clock, holdfast_lanes AS lane
    WHERE lane.lane = %(lane)s
    ON CONFLICT DO NOTHING
    RETURNING seq, lane, priority, due_at
),
ready AS (
    INSERT INTO holdfast_ready (lane, priority, due_at, seq) SELECT lane, priority, due_at, seq FROM added
),
tallies AS (
    INSERT INTO holdfast_tallies (lane, state, n) SELECT lane, 'queued', 1 FROM added
)
SELECT (
    SELECT count(pg_notify(%(channel)s, '')) FROM (
        SELECT 1 FROM holdfast_listeners WHERE id <> %(listener)s AND until > due_at LIMIT 1
    ) AS somebody
) FROM added

-- For a caller's connection: which store it leads to, and how long it waited for locks until now. It waits less from here on.
-- name: whose
WITH was AS MATERIALIZED (SELECT current_setting('lock_timeout') AS wait)
SELECT value, was.wait, set_config('lock_timeout', CASE
    WHEN was.wait::interval BETWEEN interval '1 ms' AND %(wait)s::text::interval THEN was.wait ELSE %(wait)s::text
END, true)
FROM was, holdfast_meta WHERE key = 'store'

-- name: wait_as_before
SELECT set_config('lock_timeout', %(wait)s::text, true) AS holdfast

-- name: known
SELECT id, state FROM holdfast_jobs WHERE id = ANY (%(ids)s::text[])

-- name: holders
SELECT
    held_key, id, coalesce(original_payload, payload), state,
    state IN ('completed', 'failed', 'dead_letter', 'cancelled') AND changed_at <= :now - %(window_s)s
FROM holdfast_jobs WHERE held_key = ANY (%(held_keys)s::bytea[])

-- name: free_keys
UPDATE holdfast_jobs SET held_key = NULL
WHERE held_key = ANY (%(held_keys)s::bytea[])
    AND state IN ('completed', 'failed', 'dead_letter', 'cancelled') AND changed_at <= :now - %(window_s)s
