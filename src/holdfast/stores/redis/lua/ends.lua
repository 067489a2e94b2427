-- Ends jobs that did not run here.
-- An end is {the place of its job, number of the change or 0, state, keep_s or -1, reason, attempts}, and an attempt
-- {number, started_at, worker, its text, text of the failure or 0, failed_at}, oldest first.

local function key_of(number, started_at)
  return string.format('%.17g:%.17g', number, started_at)
end

-- The attempt that completed a job, where it is not among those that were written down; nil where there is none.
-- history.py says the same.
local COMPLETE = 1

local function completion_of(job, written_down)
  if job[STATE] ~= COMPLETED or job[SETTLED] ~= COMPLETE then
    return nil
  end
  for _, one in ipairs(written_down) do
    if (one.outcome or 'complete') == 'complete' and one.number == job[ATTEMPT] then
      return nil
    end
  end
  local started_at = job[STARTED] < 0 and job[CHANGED] or job[STARTED]
  return { number = job[ATTEMPT], started_at = started_at, ended_at = job[CHANGED], worker = job[WORKER] }
end

-- Those of the attempts that the record has not, whether one of them ended since the record came into its state, and
-- the attempt that completed it, if that is still to be written down.
local function fresh_of(id, job, attempts)
  local known, fresh, written_down, is_since = {}, {}, {}, false
  if job[MORE] == 1 then
    for i, text in ipairs(redis.call('LRANGE', P .. 'attempts:' .. id, 0, -1)) do
      written_down[i] = cmsgpack.unpack(text)
    end
  end
  local completion = completion_of(job, written_down)
  for _, one in ipairs(written_down) do
    known[key_of(one.number, one.started_at)] = true
  end
  if completion then
    known[key_of(completion.number, completion.started_at)] = true
  end
  for _, one in ipairs(attempts) do
    local key = key_of(one[1], one[2])
    if not known[key] then
      known[key] = true
      fresh[#fresh + 1] = one
      is_since = is_since or one[6] >= job[CHANGED] - args[4]
    end
  end
  return fresh, is_since, completion
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

-- What has ended, and ends again, leaves the lists of those that ended so.
local function leave_ended(id, job, completion)
  if job[STATE] == DEAD_LETTER then
    forget_letter(id, job)
  end
  if GIVEN_UP[job[STATE]] then
    redis.call('ZREM', P .. GIVEN_UP[job[STATE]], id)
  end
  if completion then
    redis.call('RPUSH', P .. 'attempts:' .. id, cmsgpack.pack(completion))
  end
end

-- Whoever holds the lease loses it: no token is right from now on, nor the one of an earlier settlement. What has ended
-- is only buried again, after something new. False where it takes no effect.
local function end_one(id, job, one)
  local state, has_ended = one[3], job[STATE] >= COMPLETED
  if has_ended and state ~= DEAD_LETTER then
    return false
  end
  local attempts, is_since, completion = fresh_of(id, job, one[6])
  if has_ended and not is_since then
    return false
  elseif has_ended then
    leave_ended(id, job, completion)
  else
    take_away(id, job)
  end
  tally(job[LANE], job[STATE], -1)
  tally(job[LANE], state, 1)
  say_why(id, job, one[5])
  local failure = remember(id, job, attempts)
  job[STATE], job[SETTLED], job[SETTLED_BY], job[CHANGED], job[ELAPSED] = state, one[2], '', now, 0
  job[SUSPECT], job[ORPHAN], job[ORPHANED] = 0, 0, 0
  job[HAS_RESULT], job[RESULT] = 0, ''
  if state == COMPLETED then
    job[HAS_RESULT], job[RESULT] = 1, 'null'
    forget_notes(id, job)
  end
  if state == DEAD_LETTER then
    add_letter(id, job, failure or redis.call('HGET', P .. 'more:' .. id, 'failure'))
  end
  if GIVEN_UP[state] then
    redis.call('ZADD', P .. GIVEN_UP[state], job[SEQ], id)
  end
  return true
end

-- As if the jobs came one after the other; the answers say where each stands then.
local function end_all(ends, answers)
  local by_place, after, keep_s = {}, {}, {}
  for _, one in ipairs(ends) do
    by_place[one[1]] = one
  end
  for i = 1, #jobs do
    local one, id = by_place[i], answers[3 * i - 1]
    if one and id == jobs[i][1] then
      local job = after[id] or read(redis.call('HGET', P .. 'state', id))
      if end_one(id, job, one) then
        after[id], keep_s[id] = job, one[4]
      end
    end
    answers[3 * i] = after[id] and after[id][STATE] or answers[3 * i]
  end
  for id, job in pairs(after) do
    job[KEEP] = keep_until(id, keep_s[id], job[KEYED] == 1) -- once, or it would be pruned twice
    keep_state(id, written(job))
  end
end
