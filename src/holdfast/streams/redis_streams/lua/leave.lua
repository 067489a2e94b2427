-- Take leave: shards are free at once; the consumer is removed where nothing is pending under it, and left to be
-- claimed from at once where something is. KEYS: members, owners, streams. ARGV: group, me, number of shards.
local members, owners = KEYS[1], KEYS[2]
local group, me = ARGV[1], ARGV[2]
for shard = 0, tonumber(ARGV[3]) - 1 do
  if redis.call('HGET', owners, shard) == me then
    redis.call('HDEL', owners, shard)
  end
end
local pending = 0
for n = 3, #KEYS do
  local some = redis.pcall('XPENDING', KEYS[n], group, '-', '+', 1, me)
  if not some.err then -- without a group there is nothing to give back
    pending = pending + #some
  end
end
if pending > 0 then
  redis.call('ZADD', members, 0, me)
  return 0
end
for n = 3, #KEYS do
  redis.pcall('XGROUP', 'DELCONSUMER', KEYS[n], group, me)
end
redis.call('ZREM', members, me)
return 1
