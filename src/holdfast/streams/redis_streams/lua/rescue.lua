-- Take what is pending with consumers that are dead, and remove those of them that have nothing left: both in one go,
-- as a consumer's pending entries vanish with it.
-- KEYS: members, then of each stream its key, retries and gone. ARGV: group, me, clock offset, how long the entries of
-- a consumer that is none of ours must have been idle, how many to take at most, and for each stream 1 where they are
-- to be taken.
-- Answers whether I am a member, whether there is more; and of each stream the rows, how many entries are pending with
-- me, and how many with anybody.
local members, group, me = KEYS[1], ARGV[1], ARGV[2]
local now, left = now_ms(ARGV[3]), tonumber(ARGV[5])
local idle_ms = math.max(0, tonumber(ARGV[4]) - tonumber(ARGV[3]))

if not is_member(members, me) then
  return { 0, 0, {} }
end

local function is_dead(consumer)
  local score = alive_until(members, consumer)
  return score and score <= now
end

local function takes_from(consumer, key, retries, gone)
  local idle = idle_ms
  local score = alive_until(members, consumer)
  if score then
    if score > now then
      return {}
    end
    redis.call('ZADD', members, GIVEN_UP, consumer)
    idle = 0
  end
  local ids = {}
  for _, row in ipairs(redis.call('XPENDING', key, group, 'IDLE', idle, '-', '+', left, consumer)) do
    ids[#ids + 1] = row[1]
  end
  left = left - #ids
  return take(key, group, me, ids, retries, gone)
end

local answers = {}
for n = 2, #KEYS, 3 do
  local key, retries, gone = KEYS[n], KEYS[n + 1], KEYS[n + 2]
  local is_wanted = ARGV[6 + (n - 2) / 3] == '1'
  local rows, own = {}, 0
  local summary = redis.call('XPENDING', key, group)
  for _, pair in ipairs(summary[4] or {}) do
    if pair[1] == me then
      own = tonumber(pair[2])
    elseif is_wanted and left > 0 then
      for _, row in ipairs(takes_from(pair[1], key, retries, gone)) do
        rows[#rows + 1] = row
        own = own + (row[2] and 1 or 0)
      end
    end
  end
  if is_wanted and redis.call('EXISTS', gone) == 1 then
    local known = {}
    for _, row in ipairs(rows) do
      known[row[1]] = true
    end
    local held = redis.call('HGETALL', gone)
    for m = 1, #held, 2 do
      local holder = held[m + 1]
      if not known[held[m]] and (holder == me or not is_member(members, holder) or is_dead(holder)) then
        redis.call('HSET', gone, held[m], me)
        rows[#rows + 1] = { held[m], false, redis.call('HGET', retries, held[m]) }
      end
    end
  end
  answers[#answers + 1] = { rows, own, tonumber(summary[1]) }
end

for _, consumer in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', string.format('%d', now))) do
  local pending = 0
  for n = 2, #KEYS, 3 do
    pending = pending + #redis.call('XPENDING', KEYS[n], group, '-', '+', 1, consumer)
  end
  if pending == 0 then
    for n = 2, #KEYS, 3 do
      redis.call('XGROUP', 'DELCONSUMER', KEYS[n], group, consumer)
    end
    redis.call('ZREM', members, consumer)
  end
end
return { 1, left > 0 and 0 or 1, answers }
