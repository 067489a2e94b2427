-- Ends jobs that did not run here.
-- An end is {the place of its job, number of the change or 0, state, keep_s or -1, reason, attempts}, and an attempt
-- {number, started_at, worker, its text, text of the failure or 0, failed_at}, oldest first.

local function key_of(number, started_at)
  return string.format('%.17g:%.17g', number, started_at)
end

-- Those of the attempts that the record has not.
local function fresh_of(id, job, attempts)
  local known, fresh = {}, {}
  if job[MORE] == 1 then
    for _, text in ipairs(redis.call('LRANGE', P .. 'attempts:' .. id, 0, -1)) do
      local one = cmsgpack.unpack(text)
      known[key_of(one.number, one.started_at)] = true
    end
  end
  for _, one in ipairs(attempts) do
    local key = key_of(one[1], one[2])
    if not known[key] then
      known[key] = true
      fresh[#fresh + 1] = one
    end
  end
  return fresh
end

-- Adds them to the history; the text of the latest failure among them, if there is one.
local function remember(id, job, attempts)
  local more, failure = P .. 'more:' .. id, nil
  for _, one in ipairs(attempts) do
    redis.call('RPUSH', P .. 'attempts:' .. id, ARGV[2 + one[4]])
    if one[5] > 0 then
      failure = ARGV[2 + one[5]]
      redis.call('HSETNX', more, 'first_failed_at', string.format('%.17g', one[6]))
    end
  end
  if failure then
    redis.call('HSET', more, 'failure', failure)
  end
  local last = attempts[#attempts]
  if last then
    job[MORE], job[STARTED], job[ATTEMPT] = 1, last[2], math.max(job[ATTEMPT], last[1])
    job[WORKER] = last[3] ~= '' and last[3] or job[WORKER]
  end
  return failure
end

-- Whoever holds the lease loses it: no token is right from now on, nor the one of an earlier settlement.
local function end_one(id, job, one)
  local state = one[3]
  local attempts = fresh_of(id, job, one[6])
  take_away(id, job)
  tally(job[LANE], job[STATE], -1)
  tally(job[LANE], state, 1)
  say_why(id, job, one[5])
  local failure = remember(id, job, attempts)
  job[STATE], job[SETTLED], job[SETTLED_BY], job[CHANGED], job[ELAPSED] = state, one[2], '', now, 0
  job[SUSPECT], job[ORPHAN], job[ORPHANED] = 0, 0, 0
  job[HAS_RESULT], job[RESULT] = 0, ''
  if state == COMPLETED then
    job[HAS_RESULT], job[RESULT] = 1, 'null'
  end
  job[KEEP] = keep_until(id, one[4], job[KEYED] == 1)
  if state == DEAD_LETTER then
    add_letter(id, job, failure or redis.call('HGET', P .. 'more:' .. id, 'failure'))
  end
  if GIVEN_UP[state] then
    redis.call('ZADD', P .. GIVEN_UP[state], job[SEQ], id)
  end
  keep_state(id, written(job))
end

-- As if the jobs came one after the other; the answers say where each stands then.
local function end_all(ends, answers)
  local by_place, after = {}, {}
  for _, one in ipairs(ends) do
    by_place[one[1]] = one
  end
  for i = 1, #jobs do
    local one, id = by_place[i], answers[3 * i - 1]
    if one and id == jobs[i][1] and not after[id] then
      local job = read(redis.call('HGET', P .. 'state', id))
      if job[STATE] < COMPLETED then
        end_one(id, job, one)
        after[id] = one[3]
      end
    end
    answers[3 * i] = after[id] or answers[3 * i]
  end
end
