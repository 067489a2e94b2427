-- Write numbered messages, and none whose number was written before: a call whose answer was lost may be sent again.
-- KEYS: the producer's last number, streams. ARGV: the first number, for how long the last one is remembered, in
-- milliseconds, then for each message the number of its stream, how many words follow, and those of XADD.
-- Answers the id of each, empty where it was written before.
local last = tonumber(redis.call('GET', KEYS[1]) or 0)
local number, at, ids = tonumber(ARGV[1]), 3, {}

local function remember()
  redis.call('SET', KEYS[1], string.format('%.0f', last), 'PX', ARGV[2])
end

local function write(first, words)
  return redis.pcall('XADD', KEYS[1 + tonumber(ARGV[first])], unpack(ARGV, first + 2, first + 1 + words))
end

while at <= #ARGV do
  local words = tonumber(ARGV[at + 1])
  if number > last then
    local is_done, id = pcall(write, at, words)
    if not is_done or id.err then -- those before are written
      remember()
      return is_done and id or redis.error_reply('cannot write a message: ' .. tostring(id))
    end
    last, ids[#ids + 1] = number, id
  else
    ids[#ids + 1] = ''
  end
  number, at = number + 1, at + 2 + words
end
remember()
return ids
