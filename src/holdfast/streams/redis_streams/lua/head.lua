-- The head of every script. B is where a group begins the names of its keys: `<stream>/<group>/`.
-- members are the consumers of the group; alive/<consumer> is there until a consumer was silent for too long. One whose
-- entries or shards were taken since then, or who has left some, goes to dead, and never comes back under its name.
-- Those of the dead that took leave, or came back under another name, have not died: they are in left too.
-- owners has the consumer of each shard, and shards says how many there are.
-- A beat of a living member, a read and an acknowledgement use no command that a server refuses when its memory is
-- full, so that those who are at work can go on.
local B = KEYS[1]
local MOST = 1000 -- arguments of one command; Lua can hand over a few thousand

local function is_member(consumer)
  return redis.call('SISMEMBER', B .. 'members', consumer) == 1
end

local function is_alive(consumer)
  return redis.call('EXISTS', B .. 'alive/' .. consumer) == 1
end

local function owner_of(shard)
  return redis.call('HGET', B .. 'owners', shard)
end

-- Whether a consumer is dead. If it was still a member, it is none any more: from now on its entries may be taken.
local function is_dead(consumer)
  if is_member(consumer) then
    if is_alive(consumer) then
      return false
    end
    redis.call('SMOVE', B .. 'members', B .. 'dead', consumer)
    return true
  end
  return redis.call('SISMEMBER', B .. 'dead', consumer) == 1
end

-- Whether a consumer's process is gone, and did not say so: one of its entries may have killed it.
local function has_died(consumer)
  return is_dead(consumer) and redis.call('SISMEMBER', B .. 'left', consumer) == 0
end

-- How often those who had an entry have died; kept beside its attempts.
local function deaths_of(retries, id, is_one_more)
  if not is_one_more then
    return redis.call('HGET', retries, id .. '!')
  end
  local n = redis.pcall('HINCRBY', retries, id .. '!', 1) -- refused when its memory is full, and no reason to stop
  return type(n) == 'number' and n or false
end

-- Makes pending entries ours, in their order: id, fields, counted attempts and deaths of each; `died` has the ids of
-- those whose consumers have died. One that was deleted or trimmed
-- has no fields: the server drops it from the list of pending ones, so we keep a list of our own until it is finished.
local function take(key, group, me, ids, died, retries, gone)
  local rows, found = {}, {}
  for first = 1, #ids, MOST do
    local claimed = redis.call('XCLAIM', key, group, me, 0, unpack(ids, first, math.min(first + MOST - 1, #ids)))
    for _, entry in ipairs(claimed) do
      if entry and entry[2] then
        found[entry[1]] = entry[2]
      end
    end
  end
  local has_retries = redis.call('EXISTS', retries) == 1
  for _, id in ipairs(ids) do
    local fields = found[id] or false
    if not fields then
      redis.call('XACK', key, group, id) -- Redis 6.2 leaves it there
      redis.call('HSET', gone, id, me)
    end
    local count = has_retries and redis.call('HGET', retries, id)
    rows[#rows + 1] = { id, fields, count, (died[id] or has_retries) and deaths_of(retries, id, died[id]) }
  end
  return rows
end
