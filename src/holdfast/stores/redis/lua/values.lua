-- Small shared values with versions, and counts by the minute.

-- Compare and set, one after the other: {key, expected version, text of the data or 0 to remove it}.
local function change_values(changes)
  local answers = {}
  for i = 1, #changes do
    local key, expected, data = changes[i][1], changes[i][2], changes[i][3]
    local current = 0
    local stored = redis.call('HGET', P .. 'value', key)
    if stored then
      local version, is_removed = struct.unpack('>dB', stored)
      current = is_removed == 1 and 0 or version
    end
    answers[i] = '0'
    if current == expected then
      local version = redis.call('HINCRBY', P .. 'meta', 'version', 1)
      local text = data > 0 and ARGV[2 + data] or ''
      redis.call('HSET', P .. 'value', key, struct.pack('>dB', version, data > 0 and 0 or 1) .. text)
      redis.call('ZADD', P .. 'versions', version, key)
      if data > 0 then
        redis.call('ZREM', P .. 'removed', key)
      else
        redis.call('ZADD', P .. 'removed', now, key)
      end
      answers[i] = '1'
      is_news = true
    end
  end
  return table.concat(answers)
end

local function newest_version()
  return tonumber(redis.call('HGET', P .. 'meta', 'version') or 0)
end

-- Key and text of every value with a higher version, oldest first.
local function values_above(seen)
  if seen >= newest_version() then
    return {}
  end
  local keys = redis.call('ZRANGEBYSCORE', P .. 'versions', '(' .. seen, '+inf')
  local texts = read_many('value', keys)
  local answer = {}
  for i = 1, #keys do
    answer[#answer + 1] = keys[i]
    answer[#answer + 1] = texts[i]
  end
  return answer
end

-- Whether counts of this name, {worker, number}, were not added before; those without a name, if the call is the first.
local function is_new(counted, is_first)
  if not counted then
    return is_first
  end
  local worker, number = counted[1], counted[2]
  if number <= tonumber(redis.call('HGET', P .. 'counted', worker) or 0) then
    return false
  end
  redis.call('HSET', P .. 'counted', worker, string.format('%.0f', number))
  return true
end

-- So many more of each: {minute, task, name, n}. Minute 0 has the totals, and is not among those that are pruned.
local function add_counts(counts)
  for i = 1, #counts do
    local minute, task, name, n = unpack(counts[i])
    redis.call('HINCRBY', P .. 'minute:' .. minute, name .. ' ' .. task, n)
    if minute > 0 then
      redis.call('ZADD', P .. 'minutes', minute, minute)
    end
  end
end
