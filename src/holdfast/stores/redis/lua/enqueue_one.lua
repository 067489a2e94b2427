-- New jobs, as they are first written down; and one job without an idempotency key, which is done with here.
-- new_jobs.lua says what it is told and what it answers.

local jobs = args[2]

local function lane_of(name)
  local number = redis.call('HGET', P .. 'lane', name)
  if not number then
    number = redis.call('HINCRBY', P .. 'meta', 'lane', 1)
    redis.call('HSET', P .. 'lane', name, number)
    redis.call('HSET', P .. 'lane_name', number, name)
  end
  return tonumber(number)
end

-- The state of a new job is the same front for all, this middle, and a tail without texts; its place in line is the
-- middle's rank, due time and seq, and its id.
local function middle_of(job, lane, seq)
  return struct.pack(MIDDLE, job[5] and 1 or 0, 0, 0, 0, lane, job[3], now + job[4], seq, now)
end

local function place_in(middle, id)
  return string.sub(middle, 9, 32) .. id
end

local front = struct.pack(FRONT, QUEUED, 0, 0, 0, 0, 0, now, 0, -1, -1, 0, 0, 0)
local tail = '\0\0\0\0'

-- What most callers send, and wait for: with the fewest steps.
if #jobs == 1 and not jobs[1][5] and not args[3] then
  local job = jobs[1]
  local id = job[1]
  local known = redis.call('HGET', P .. 'state', id)
  if known then
    return { 'o', id, string.byte(known, 1) }
  end
  local seq = redis.call('HINCRBY', P .. 'meta', 'seq', 1)
  local lane = lane_of(ARGV[3])
  local middle = middle_of(job, lane, seq)
  redis.call('HSET', P .. 'job', id, ARGV[4])
  redis.call('HSET', P .. 'state', id, front .. middle .. tail)
  redis.call('ZADD', P .. 'all', seq, id)
  if job[4] > 0 then
    redis.call('ZADD', P .. 'delayed', now + job[4], place_in(middle, id))
  else
    redis.call('ZADD', P .. 'ready:' .. lane, 0, place_in(middle, id))
    redis.call('ZADD', P .. 'ready', lane, lane)
  end
  redis.call('HINCRBY', P .. 'tally', lane * 8 + QUEUED, 1)
  local block = math.floor(seq / BLOCK)
  redis.call('ZADD', P .. 'marks', 0, mark_of('l' .. lane, block))
  for _, owner in ipairs(job[6] or {}) do
    redis.call('ZADD', P .. 'marks', 0, mark_of(owner, block))
  end
  tell()
  return {}
end
