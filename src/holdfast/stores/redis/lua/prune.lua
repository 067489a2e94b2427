-- Deletes up to so many records whose time is over, and some of what nobody needs any more. Answers with how many
-- records, and whether there are more.
-- args: 1 limit, 2 for how many minutes counts are kept, 3 for how many seconds what was removed of the values, 4 for
-- how many seconds workers that are gone, 5 how many hours are told of letters.

local AT_ONCE, LANES_AT_ONCE = 500, 200
local limit = math.min(args[1], AT_ONCE)
go_on_when_full()

local oldest = math.floor(now / 60) - args[2]
for _, minute in ipairs(redis.call('ZRANGEBYSCORE', P .. 'minutes', '-inf', '(' .. oldest, 'LIMIT', 0, AT_ONCE)) do
  redis.call('DEL', P .. 'minute:' .. minute)
  redis.call('ZREM', P .. 'minutes', minute)
end
local gone = redis.call('ZRANGEBYSCORE', P .. 'gone', '-inf', now - args[4], 'LIMIT', 0, AT_ONCE)
write_many('HDEL', 'counted', gone)
write_many('ZREM', 'gone', gone)
local keys = redis.call('ZRANGEBYSCORE', P .. 'removed', '-inf', now - args[3], 'LIMIT', 0, AT_ONCE)
write_many('HDEL', 'value', keys)
write_many('ZREM', 'versions', keys)
write_many('ZREM', 'removed', keys)

-- Hours of letters that nobody is told of any more, and marks of blocks without jobs, some of them with each call.
for _, hour in ipairs(redis.call('ZRANGEBYSCORE', P .. 'letter_hours', '-inf', math.floor(now / HOUR_S) - args[5], 'LIMIT', 0, AT_ONCE)) do
  redis.call('DEL', P .. 'letter_hour:' .. hour)
  redis.call('ZREM', P .. 'letter_hours', hour)
end
local swept_to = redis.call('HGET', P .. 'meta', 'marks_swept_to')
local marks = redis.call('ZRANGEBYLEX', P .. 'marks', swept_to and '(' .. swept_to or '-', '+', 'LIMIT', 0, AT_ONCE)
for i = 1, #marks do
  local first = BLOCK * struct.unpack('>I4', marks[i], #marks[i] - 3)
  if #redis.call('ZRANGEBYSCORE', P .. 'all', first, first + BLOCK - 1, 'LIMIT', 0, 1) == 0 then
    redis.call('ZREM', P .. 'marks', marks[i])
  end
end
if #marks == AT_ONCE then
  redis.call('HSET', P .. 'meta', 'marks_swept_to', marks[#marks])
elseif swept_to then
  redis.call('HDEL', P .. 'meta', 'marks_swept_to')
end

-- Lanes without jobs, some of them with each call: the tallies say which.
local cursor = redis.call('HGET', P .. 'meta', 'sweep') or '0'
local found = redis.call('HSCAN', P .. 'lane_name', cursor, 'COUNT', LANES_AT_ONCE)
redis.call('HSET', P .. 'meta', 'sweep', found[1])
for i = 1, #found[2], 2 do
  local number, name = found[2][i], found[2][i + 1]
  local kinds, sum = {}, 0
  for state = 0, 7 do
    kinds[state + 1] = number * 8 + state
  end
  for _, n in ipairs(read_many('tally', kinds)) do
    sum = sum + (tonumber(n or 0) or 0)
  end
  if sum == 0 then
    redis.call('HDEL', P .. 'lane', name)
    redis.call('HDEL', P .. 'lane_name', number)
    write_many('HDEL', 'tally', kinds)
  end
end

-- Those that end their time in one second are written down together. One that was replayed or removed since is passed
-- over; what is too much for this call is written down again.
local removed, looked_at = 0, 0
while removed < limit and looked_at < AT_ONCE do
  local found = redis.call('ZRANGEBYSCORE', P .. 'kept', '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1)
  if not found[1] then
    break
  end
  local ids, rest = cmsgpack.unpack(found[1]), {}
  local texts = read_many('state', ids)
  for i = 1, #ids do
    local job = texts[i] and read(texts[i])
    if job and job[STATE] >= COMPLETED and job[KEEP] >= 0 and job[KEEP] <= now then
      if removed < limit then
        remove(ids[i], job)
        removed = removed + 1
      else
        rest[#rest + 1] = ids[i]
      end
    end
  end
  looked_at = looked_at + #ids
  redis.call('ZREM', P .. 'kept', found[1])
  if #rest > 0 then
    redis.call('ZADD', P .. 'kept', found[2], cmsgpack.pack(rest))
  end
  flush_removed()
end
flush()
return { removed, #redis.call('ZRANGEBYSCORE', P .. 'kept', '-inf', now, 'LIMIT', 0, 1) }
