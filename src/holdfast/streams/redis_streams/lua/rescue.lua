-- Take what is pending with consumers that are dead, and remove those of them that have nothing left: both in one go,
-- as a consumer's pending entries vanish with it.
-- KEYS: B, then of each stream its key, retries and gone. ARGV: group, me, how long the entries of a consumer that is
-- none of ours must have been idle, how many to take at most, and for each stream 1 where they are to be taken.
-- Answers whether I am a member, whether there is more; and of each stream the rows, how many entries are pending with
-- me, and how many with anybody.
local group, me, idle_ms, left = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if not is_member(me) then
  return { 0, 0, {} }
end

local function pending_of(key, consumer)
  local idle, is_death = 0, has_died(consumer)
  if not is_dead(consumer) then
    if is_member(consumer) then
      return {}, {}
    end
    idle = idle_ms
  end
  local ids, died = {}, {}
  for _, row in ipairs(redis.call('XPENDING', key, group, 'IDLE', idle, '-', '+', left, consumer)) do
    ids[#ids + 1] = row[1]
    died[row[1]] = is_death
  end
  left = left - #ids
  return ids, died
end

local answers = {}
for n = 2, #KEYS, 3 do
  local key, retries, gone = KEYS[n], KEYS[n + 1], KEYS[n + 2]
  local is_wanted = ARGV[5 + (n - 2) / 3] == '1'
  local rows, own, known = {}, 0, {}
  local summary = redis.call('XPENDING', key, group)
  for _, pair in ipairs(summary[4] or {}) do
    if pair[1] == me then
      own = own + tonumber(pair[2])
    elseif is_wanted and left > 0 then
      local ids, died = pending_of(key, pair[1])
      for _, row in ipairs(take(key, group, me, ids, died, retries, gone)) do
        rows[#rows + 1] = row
        known[row[1]] = true
        own = own + (row[2] and 1 or 0)
      end
    end
  end
  if is_wanted and redis.call('EXISTS', gone) == 1 then
    local held = redis.call('HGETALL', gone)
    for m = 1, #held, 2 do
      local id, holder = held[m], held[m + 1]
      if not known[id] and (holder == me or not (is_member(holder) and is_alive(holder))) then
        redis.call('HSET', gone, id, me)
        rows[#rows + 1] = { id, false, redis.call('HGET', retries, id), false }
      end
    end
  end
  answers[#answers + 1] = { rows, own, tonumber(summary[1]) }
end

for _, consumer in ipairs(redis.call('SMEMBERS', B .. 'members')) do
  is_dead(consumer)
end
for _, consumer in ipairs(redis.call('SMEMBERS', B .. 'dead')) do
  local pending = 0
  for n = 2, #KEYS, 3 do
    pending = pending + #redis.call('XPENDING', KEYS[n], group, '-', '+', 1, consumer)
  end
  if pending == 0 then
    for n = 2, #KEYS, 3 do
      redis.call('XGROUP', 'DELCONSUMER', KEYS[n], group, consumer)
    end
    redis.call('SREM', B .. 'dead', consumer)
    redis.call('SREM', B .. 'left', consumer)
  end
end
return { 1, left > 0 and 0 or 1, answers }
