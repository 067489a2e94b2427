-- Stay a member, or become one; give shards back, and take as many free ones as are our share.
-- KEYS: members, owners. ARGV: me, clock offset, how long I am alive, number of shards (0: not sharded), whether I join,
-- a name that I had before ('' for none), and the shards that I give back.
-- Answers whether I am a member; how many members are dead; how many shards I have too many; and those that I have.
local members, owners = KEYS[1], KEYS[2]
local me, shards = ARGV[1], tonumber(ARGV[4])
local now = now_ms(ARGV[2])

if ARGV[6] ~= '' then -- a read of its own may have come late, and made the consumer anew: others shall look after it
  redis.call('ZADD', members, GIVEN_UP, ARGV[6])
end
if ARGV[5] ~= '1' and not is_member(members, me) then
  return { 0 }
end
redis.call('ZADD', members, string.format('%d', now + tonumber(ARGV[3])), me)
local dead = redis.call('ZCOUNT', members, '-inf', string.format('%d', now))
if shards == 0 then
  return { 1, dead, 0, { 0 } }
end

for n = 7, #ARGV do
  if redis.call('HGET', owners, ARGV[n]) == me then
    redis.call('HDEL', owners, ARGV[n])
  end
end
local live = redis.call('ZRANGEBYSCORE', members, string.format('(%d', now), '+inf')
table.sort(live)
local is_live, rank = {}, 0
for n, consumer in ipairs(live) do
  is_live[consumer] = true
  if consumer == me then
    rank = n
  end
end
local share = math.floor(shards / #live)
if rank <= shards % #live then
  share = share + 1
end
local mine, free = {}, {}
for shard = 0, shards - 1 do
  local owner = redis.call('HGET', owners, shard)
  if owner == me then
    mine[#mine + 1] = shard
  elseif not owner or not is_live[owner] then
    free[#free + 1] = { shard, owner }
  end
end
for _, one in ipairs(free) do
  if #mine >= share then
    break
  end
  if one[2] and is_member(members, one[2]) then
    redis.call('ZADD', members, GIVEN_UP, one[2])
  end
  redis.call('HSET', owners, one[1], me)
  mine[#mine + 1] = one[1]
end
return { 1, dead, math.max(0, #mine - share), mine }
