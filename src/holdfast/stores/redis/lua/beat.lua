-- Registers a worker, renews its lease, or takes its leave.
-- args: 1 worker, 2 lease_s, 3 the name of the call; the text is its record.
-- Answers whether it is alive, which of its jobs somebody cancelled, and its tokens, each with how many jobs run under it.
-- What is cancelled is told until a later heartbeat comes, so one that is sent again after its answer was lost tells it again.

local worker, lease_s, call = args[1], args[2], args[3]
go_on_when_full()
if redis.call('ZSCORE', P .. 'gone', worker) then
  return { 0, {}, {} }
end
if lease_s <= 0 then
  give_up(worker)
  flush()
  return { 0, {}, {} }
end
redis.call('ZADD', P .. 'leases', now + lease_s, worker)
redis.call('HSET', P .. 'worker', worker, struct.pack('>d', now) .. ARGV[3])
local told = P .. 'told:' .. worker
local cancelled = redis.call('HGETALL', told)
local ids = {}
for i = 1, #cancelled, 2 do
  if cancelled[i + 1] == '' or cancelled[i + 1] == call then
    ids[#ids + 1] = cancelled[i]
    redis.call('HSET', told, cancelled[i], call)
  else
    redis.call('HDEL', told, cancelled[i])
  end
end
local held = {}
for _, token in ipairs(redis.call('ZRANGE', P .. 'claims:' .. worker, 0, -1)) do
  local n = tonumber(redis.call('HGET', P .. 'claim:' .. token, 'held') or 0)
  if n > 0 then
    held[#held + 1] = token
    held[#held + 1] = n
  end
end
return { 1, ids, held }
