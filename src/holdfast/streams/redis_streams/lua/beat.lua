-- Stay a member, or become one; give shards back, and take as many free ones as are our share.
-- KEYS: B. ARGV: me, how long I am alive, number of shards (1: not sharded), whether I join, a name that I had before
-- ('' for none), and the shards that I give back.
-- Answers 1 when I am a member; how many members are dead; how many shards I have too many; and those that I have.
-- Answers 0 when I am none, and 2 with their number of shards when living members have another: two numbers at a time
-- would have one key in two shards.
local me, alive_ms, shards, joins, before = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5]
local alive = B .. 'alive/' .. me

if joins then
  local known = redis.call('GET', B .. 'shards')
  if known ~= ARGV[3] then
    for _, consumer in ipairs(redis.call('SMEMBERS', B .. 'members')) do
      if known and consumer ~= me and is_alive(consumer) then
        return { 2, tonumber(known) }
      end
    end
    redis.call('SET', B .. 'shards', ARGV[3])
  end
  redis.call('SADD', B .. 'members', me)
  if before ~= '' then -- a read of its own may have come late, and made it anew: others shall look after it
    redis.call('SADD', B .. 'dead', before)
    redis.call('SADD', B .. 'left', before)
  end
elseif not is_member(me) then
  return { 0 }
end
if redis.call('PEXPIRE', alive, alive_ms) == 0 then
  redis.call('SET', alive, '', 'PX', alive_ms)
end

local live = {}
local dead = redis.call('SCARD', B .. 'dead')
for _, consumer in ipairs(redis.call('SMEMBERS', B .. 'members')) do
  if is_alive(consumer) then
    live[#live + 1] = consumer
  else
    dead = dead + 1
  end
end
if shards == 1 then
  return { 1, dead, 0, { 0 } }
end

for n = 6, #ARGV do
  if owner_of(ARGV[n]) == me then
    redis.call('HDEL', B .. 'owners', ARGV[n])
  end
end
table.sort(live)
local share = math.floor(shards / #live)
for rank, consumer in ipairs(live) do
  if consumer == me and rank <= shards % #live then
    share = share + 1
  end
end
local mine, free = {}, {}
for shard = 0, shards - 1 do
  local owner = owner_of(shard)
  if owner == me then
    mine[#mine + 1] = shard
  elseif not owner or not (is_member(owner) and is_alive(owner)) then
    free[#free + 1] = { shard, owner }
  end
end
for _, one in ipairs(free) do
  if #mine >= share then
    break
  end
  if one[2] then
    is_dead(one[2])
  end
  local set = redis.pcall('HSET', B .. 'owners', one[1], me)
  if type(set) == 'table' and set.err then
    break
  end
  mine[#mine + 1] = one[1]
end
return { 1, dead, math.max(0, #mine - share), mine }
