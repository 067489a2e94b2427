-- Who holds what: each claim under its token, the claims of each worker, and what the dead leave behind.

-- The latest token of those that begin as this one does. Most often it is the latest of all, or there are few others
-- above it.
local function latest_like(token, mine)
  local first = string.sub(token, 1, 2)
  for _, last in ipairs({ 0, 7, -1 }) do
    for _, one in ipairs(redis.call('ZREVRANGE', mine, 0, last)) do
      if string.sub(one, 1, 2) == first then
        return one
      end
    end
  end
end

-- By bytes: `<` goes by the language of the server's machine, and in Danish `aa` comes after everything.
local function is_below(token, other)
  for i = 1, #token do
    local mine, its = string.byte(token, i), string.byte(other, i) or 0
    if mine ~= its then
      return mine < its
    end
  end
  return #token < #other
end

-- Whether a claim comes after a later one of its worker: nobody waits for its answer any more.
local function is_late(token, worker)
  local latest = latest_like(token, P .. 'claims:' .. worker)
  return latest and is_below(token, latest)
end

-- These are a worker's own from now on. The latest claim of a living worker is remembered, settled or not: it and those
-- before it may come again.
local function hold(token, worker, ids)
  local mine = P .. 'claims:' .. worker
  local latest = latest_like(token, mine)
  if latest and tonumber(redis.call('HGET', P .. 'claim:' .. latest, 'held') or 0) <= 0 then
    redis.call('DEL', P .. 'claim:' .. latest)
    redis.call('ZREM', mine, latest)
  end
  redis.call('HSET', P .. 'claim:' .. token, 'worker', worker, 'held', #ids, 'ids', cmsgpack.pack(ids))
  redis.call('ZADD', mine, redis.call('HINCRBY', P .. 'meta', 'claim', 1), token)
end

-- So many are no longer held under a token.
local function let_go(token, n)
  local claim = P .. 'claim:' .. token
  if redis.call('HINCRBY', claim, 'held', -n) > 0 then
    return
  end
  local mine = P .. 'claims:' .. (redis.call('HGET', claim, 'worker') or '')
  if latest_like(token, mine) ~= token then
    redis.call('DEL', claim)
    redis.call('ZREM', mine, token)
    redis.call('ZREM', P .. 'orphans', token)
  end
end

-- Of the jobs under a token those that still run under it: their ids and their states.
local function held_under(token, packed)
  local ids, texts = {}, {}
  local all = cmsgpack.unpack(packed)
  for i, text in ipairs(read_many('state', all)) do
    if text then
      local job = read(text)
      if job[STATE] == RUNNING and job[TOKEN] == token then
        ids[#ids + 1] = all[i]
        texts[#texts + 1] = text
      end
    end
  end
  return ids, texts
end

-- A worker is gone for good: what it holds waits to be judged.
local function give_up(worker)
  redis.call('ZREM', P .. 'leases', worker)
  redis.call('HDEL', P .. 'worker', worker)
  redis.call('HDEL', P .. 'turns', worker)
  redis.call('DEL', P .. 'told:' .. worker)
  redis.call('ZADD', P .. 'gone', now, worker)
  local mine = P .. 'claims:' .. worker
  for _, token in ipairs(redis.call('ZRANGE', mine, 0, -1)) do
    if tonumber(redis.call('HGET', P .. 'claim:' .. token, 'held') or 0) > 0 then
      redis.call('ZADD', P .. 'orphans', redis.call('HINCRBY', P .. 'meta', 'claim', 1), token)
    else
      redis.call('DEL', P .. 'claim:' .. token)
    end
  end
  redis.call('DEL', mine)
  is_news = true
end

-- What is handed out: ids, the texts of the jobs, their states, and of those with notes, an edited payload or somebody
-- to blame, their number and all that is known of them.
local function deliveries_of(ids, texts)
  local more = {}
  for i = 1, #ids do
    if string.byte(texts[i], MORE_AT) == 1 then
      local job = read(texts[i])
      if job[NOTED] == 1 or job[EDITED] == 1 or job[ORPHAN] == 1 then
        more[#more + 1] = i
        more[#more + 1] = redis.call('HGETALL', P .. 'more:' .. ids[i])
      end
    end
  end
  return ids, read_many('job', ids), texts, more
end
