-- The states of jobs, read and written, and all that is written once at the end of a script.

local function read(text)
  local job = { struct.unpack(FORMAT, text) }
  job[RESULT] = string.sub(text, job[RESULT]) -- the last value is where the rest begins
  return job
end

local function written(job)
  return struct.pack(
    FORMAT, job[1], job[2], job[3], job[4], job[5], job[6], job[7], job[8], job[9], job[10], job[11], job[12], job[13],
    job[14], job[15], job[16], job[17], job[18], job[19], job[20], job[21], job[22], #job[TOKEN], job[TOKEN],
    #job[SETTLED_BY], job[SETTLED_BY], #job[WORKER], job[WORKER]
  ) .. job[RESULT]
end

-- ---------------------------------------------------------------- many at once: Lua takes only so many arguments

local PIECE = 2000

local function read_many(key, fields)
  local n = #fields
  if n == 0 then
    return {}
  elseif n <= PIECE then
    return redis.call('HMGET', P .. key, unpack(fields))
  end
  local found = {}
  for first = 1, n, PIECE do
    local some = redis.call('HMGET', P .. key, unpack(fields, first, math.min(first + PIECE - 1, n)))
    for i = 1, #some do
      found[first + i - 1] = some[i]
    end
  end
  return found
end

local function write_many(command, key, words)
  for first = 1, #words, PIECE do
    redis.call(command, P .. key, unpack(words, first, math.min(first + PIECE - 1, #words)))
  end
end

-- ---------------------------------------------------------------- what is written once, at the end

local states, tallies, ready, delayed, kept = {}, {}, {}, {}, {}
local is_news = false

local function keep_state(id, text)
  local n = #states
  states[n + 1] = id
  states[n + 2] = text
end

-- When a job that ends now is to be pruned, or -1; those of one second are written down together, up to a bound.
local KEPT_TOGETHER = 500

local function keep_until(id, keep_s, has_key)
  if keep_s < 0 then
    return -1
  end
  local instant = now + (has_key and math.max(keep_s, window) or keep_s)
  local second = math.ceil(instant)
  local ids = kept[second]
  if not ids then
    ids = {}
    kept[second] = ids
  end
  ids[#ids + 1] = id
  return instant
end

local function tally(lane, state, n)
  local kind = lane * 8 + state
  tallies[kind] = (tallies[kind] or 0) + n
end

local function place_of(id, job)
  return struct.pack('>ddd', job[RANK], job[DUE], job[SEQ]) .. id
end

-- It can be claimed now, or once it is due.
local function line_up(number, place, due_at)
  if due_at then
    delayed[#delayed + 1] = due_at
    delayed[#delayed + 1] = place
    return
  end
  local lane = ready[number]
  if lane then
    local n = #lane
    lane[n + 1], lane[n + 2] = 0, place
  else
    ready[number] = { 0, place }
  end
end

local function flush_ready()
  for lane, places in pairs(ready) do
    write_many('ZADD', 'ready:' .. lane, places)
    redis.call('ZADD', P .. 'ready', lane, lane)
  end
  write_many('ZADD', 'delayed', delayed)
  ready, delayed = {}, {}
end

local function flush()
  write_many('HSET', 'state', states)
  states = {}
  flush_ready()
  for second, ids in pairs(kept) do
    for first = 1, #ids, KEPT_TOGETHER do
      local some = { unpack(ids, first, math.min(first + KEPT_TOGETHER - 1, #ids)) }
      redis.call('ZADD', P .. 'kept', second, cmsgpack.pack(some))
    end
  end
  kept = {}
  for kind, n in pairs(tallies) do
    if n ~= 0 then
      redis.call('HINCRBY', P .. 'tally', kind, n)
    end
  end
  tallies = {}
  if is_news then
    tell()
    is_news = false
  end
end

-- What completes has no next attempt that could need its notes, and there may be much in them.
local function forget_notes(id, job)
  if job[NOTED] == 1 then
    job[NOTED] = 0
    local names = {}
    for _, name in ipairs(redis.call('HKEYS', P .. 'more:' .. id)) do
      if name == 'checkpoint' or string.sub(name, 1, 5) == 'step:' then
        names[#names + 1] = name
      end
    end
    write_many('HDEL', 'more:' .. id, names)
  end
end

-- A first write that takes no memory: Redis at its limit refuses a script only before it has written. What is under way
-- comes to its end like this, while new jobs are refused.
local function go_on_when_full()
  redis.call('DEL', P .. 'room')
end
