-- Jobs that are taken away: from the line they stand in, or from whoever runs them.

local function leave_line(id, job)
  local place = place_of(id, job)
  local lane = P .. 'ready:' .. job[LANE]
  if redis.call('ZREM', lane, place) == 0 then
    redis.call('ZREM', P .. 'delayed', place)
  elseif redis.call('EXISTS', lane) == 0 then
    redis.call('ZREM', P .. 'ready', job[LANE])
  end
end

local function tell_holder(id, token)
  local worker = redis.call('HGET', P .. 'claim:' .. token, 'worker')
  if worker and redis.call('ZSCORE', P .. 'leases', worker) then
    redis.call('HSET', P .. 'told:' .. worker, id, '')
  end
end

local function take_away(id, job)
  if job[STATE] == RUNNING then
    tell_holder(id, job[TOKEN])
    let_go(job[TOKEN], 1)
    job[TOKEN] = ''
    is_news = true
  else
    leave_line(id, job)
  end
end

local function say_why(id, job, reason)
  if job[MORE] == 1 then
    redis.call('HDEL', P .. 'more:' .. id, 'reason', 'blame')
  end
  if reason ~= '' then
    redis.call('HSET', P .. 'more:' .. id, 'reason', reason)
    job[MORE] = 1
  end
end
