-- The head of every script. Members are a sorted set: a consumer, and until when it is alive, in milliseconds of the
-- server's clock. One whose entries or shards others may have taken is given up: it never comes back under its name.
local GIVEN_UP = -1
local MOST = 1000 -- arguments of one command; Lua can hand over a few thousand

local function now_ms(offset_ms)
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(offset_ms)
end

-- Until when a consumer is alive: 0 or less when it has left or was given up, nil when it is none of ours.
local function alive_until(members, consumer)
  local score = redis.call('ZSCORE', members, consumer)
  return score and tonumber(score)
end

local function is_member(members, consumer)
  local score = alive_until(members, consumer)
  return score ~= nil and score ~= false and score > 0
end

-- Makes pending entries ours, in their order: id, fields and counted attempts of each. One that was deleted or trimmed
-- has no fields: the server drops it from the list of pending ones, so we keep a list of our own until it is finished.
local function take(key, group, me, ids, retries, gone)
  local rows = {}
  if #ids == 0 then
    return rows
  end
  local found = {}
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
    rows[#rows + 1] = { id, fields, has_retries and redis.call('HGET', retries, id) }
  end
  return rows
end
