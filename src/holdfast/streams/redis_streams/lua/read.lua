-- Read new entries of the shards that are ours, and of no other: whoever has lost one, and does not know it yet, gets
-- nothing. KEYS: B, streams. ARGV: group, me, how many of each stream, the shard of each stream.
-- Answers what XREADGROUP does; where there is nothing, from which id on each of the streams may be waited for.
local group, me = ARGV[1], ARGV[2]
local mine, words = {}, {}
for n = 2, #KEYS do
  if owner_of(ARGV[n + 2]) == me then
    mine[#mine + 1] = KEYS[n]
    words[#words + 1] = KEYS[n]
  end
end
if #mine == 0 then
  return { false, {}, {} }
end
for _ = 1, #mine do
  words[#words + 1] = '>'
end
local found = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', ARGV[3], 'STREAMS', unpack(words))
if found then
  return { found }
end
local ids = {}
for n, key in ipairs(mine) do
  ids[n] = '$'
  for _, about in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local facts = {}
    for m = 1, #about, 2 do
      facts[about[m]] = about[m + 1]
    end
    if facts['name'] == group then
      ids[n] = facts['last-delivered-id']
    end
  end
end
return { false, mine, ids }
