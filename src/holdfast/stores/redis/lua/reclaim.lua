-- Gives up the workers whose lease is over, and hands their jobs to this one, to be judged.
-- args: 1 worker, 2 token, 3 limit.

local WORKERS_AT_ONCE, CLAIMS_AT_ONCE = 100, 100
local worker, token, limit = args[1], args[2], args[3]

-- A clock that went back, as after a failover, would keep the dead alive until it has come as far again: their leases
-- begin anew.
local function mend_leases()
  local latest = redis.call('ZREVRANGE', P .. 'leases', 0, WORKERS_AT_ONCE - 1)
  for i, text in ipairs(read_many('worker', latest)) do
    local seen_at = text and struct.unpack('>d', text) or now
    if seen_at > now then
      local lease_s = redis.call('ZSCORE', P .. 'leases', latest[i]) - seen_at
      redis.call('ZADD', P .. 'leases', now + lease_s, latest[i])
      redis.call('HSET', P .. 'worker', latest[i], struct.pack('>d', now) .. string.sub(text, 9))
    end
  end
end

-- Whoever's own lease is over gives nobody up; its lease is read anew, as it may have been mended.
local function give_up_late()
  if tonumber(redis.call('ZSCORE', P .. 'leases', worker)) <= now then
    return
  end
  for _, late in ipairs(redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', now, 'LIMIT', 0, WORKERS_AT_ONCE)) do
    if late ~= worker then
      give_up(late)
    end
  end
end

-- Put up to so many orphans under the new token.
local function adopt(ids, texts)
  for _, old in ipairs(redis.call('ZRANGE', P .. 'orphans', 0, CLAIMS_AT_ONCE - 1)) do
    if #ids >= limit then
      return
    end
    local packed = redis.call('HGET', P .. 'claim:' .. old, 'ids')
    local theirs, found = {}, {}
    if packed then
      theirs, found = held_under(old, packed)
    end
    local n = math.min(#theirs, limit - #ids)
    for i = 1, n do
      local job = read(found[i])
      job[TOKEN] = token
      job[ORPHANED] = job[ORPHANED] + 1 - job[ORPHAN] -- else it was the worker that was to judge it which died
      job[ORPHAN] = 1
      ids[#ids + 1] = theirs[i]
      texts[#texts + 1] = written(job)
      keep_state(theirs[i], texts[#texts])
    end
    if n == #theirs then
      redis.call('DEL', P .. 'claim:' .. old)
      redis.call('ZREM', P .. 'orphans', old)
    elseif n > 0 then
      let_go(old, n)
    end
  end
end

if not redis.call('ZSCORE', P .. 'leases', worker) then
  return { {}, {}, {}, {} }
end
local ids, texts = {}, {}
local used = redis.call('HMGET', P .. 'claim:' .. token, 'worker', 'ids')
go_on_when_full()
if used[1] == worker then
  ids, texts = held_under(token, used[2])
elseif not used[1] and is_first_time() and not is_late(token, worker) then
  mend_leases()
  give_up_late()
  adopt(ids, texts)
  if #ids > 0 then
    hold(token, worker, ids)
  end
  is_news = redis.call('EXISTS', P .. 'orphans') == 1 -- whoever reclaims has the others
  flush()
end
return { deliveries_of(ids, texts) }
