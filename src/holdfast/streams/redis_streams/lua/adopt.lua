-- Take what is pending in one stream, whoever had it: that of a shard which is ours now, or what is pending with us and
-- never reached us, as an answer was lost. KEYS: B, stream, retries, gone. ARGV: group, me, the shard ('' when not
-- sharded: then only what is pending with us), from which id on, how many.
-- Answers whether it is ours, the rows, and the id to go on after ('' at the end).
local key, retries, gone = KEYS[2], KEYS[3], KEYS[4]
local group, me, shard, from, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if not is_member(me) or (shard ~= '' and owner_of(shard) ~= me) then
  return { 0, {}, '' }
end
local pending
if shard == '' then
  pending = redis.call('XPENDING', key, group, from, '+', most, me)
else
  pending = redis.call('XPENDING', key, group, from, '+', most)
end
local ids, died, rows = {}, {}, {}
for _, row in ipairs(pending) do
  ids[#ids + 1] = row[1]
  died[row[1]] = row[2] ~= me and has_died(row[2])
end
if from == '-' and shard ~= '' then -- what is gone comes first, as it is the oldest
  local held = redis.call('HGETALL', gone)
  for m = 1, #held, 2 do
    redis.call('HSET', gone, held[m], me)
    rows[#rows + 1] = { held[m], false, redis.call('HGET', retries, held[m]), false }
  end
end
for _, row in ipairs(take(key, group, me, ids, died, retries, gone)) do
  rows[#rows + 1] = row
end
return { 1, rows, #ids == most and ids[#ids] or '' }
