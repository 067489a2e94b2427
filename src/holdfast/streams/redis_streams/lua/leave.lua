-- Take leave: shards are free at once; the consumer is removed where nothing is pending under it, and left to be
-- claimed from at once where something is. KEYS: B, streams. ARGV: group, me, number of shards.
local group, me = ARGV[1], ARGV[2]
for shard = 0, tonumber(ARGV[3]) - 1 do
  if owner_of(shard) == me then
    redis.call('HDEL', B .. 'owners', shard)
  end
end
redis.call('DEL', B .. 'alive/' .. me)
local pending = 0
for n = 2, #KEYS do
  local some = redis.pcall('XPENDING', KEYS[n], group, '-', '+', 1, me)
  if not some.err then -- without a group there is nothing to give back
    pending = pending + #some
  end
end
if pending > 0 then
  redis.pcall('SADD', B .. 'left', me)
  return is_dead(me) and 0 or 1
end
for n = 2, #KEYS do
  redis.pcall('XGROUP', 'DELCONSUMER', KEYS[n], group, me)
end
redis.call('SREM', B .. 'members', me)
return 1
