-- Everything counted, in one consistent look. args: 1 the first minute whose counts are told, or nil.

local STEPS = 2000
local steps = 0
local oldest = {}

local function note_age(lane, due_at)
  lane = tostring(lane)
  oldest[lane] = math.min(due_at, oldest[lane] or due_at)
end

-- From priority to priority in each lane: the first job of each is its oldest.
for _, lane in ipairs(redis.call('ZRANGE', P .. 'ready', 0, STEPS - 1)) do
  local from = '-'
  repeat
    local place = redis.call('ZRANGEBYLEX', P .. 'ready:' .. lane, from, '+', 'LIMIT', 0, 1)[1]
    if place then
      local _, due_at = struct.unpack('>dd', place)
      note_age(lane, due_at)
      from = '(' .. string.sub(place, 1, 8) .. '\255' -- no instant begins so
    end
    steps = steps + 1
  until not place or steps > STEPS
end

-- Those that are due and were not claimed since.
local places = redis.call('ZRANGEBYSCORE', P .. 'delayed', '-inf', now, 'LIMIT', 0, STEPS)
local ids = {}
for i = 1, #places do
  ids[i] = string.sub(places[i], 25)
end
for _, text in ipairs(read_many('state', ids)) do
  if text then
    local job = read(text)
    note_age(job[LANE], job[DUE])
  end
end
local ages = {}
for lane, due_at in pairs(oldest) do
  ages[#ages + 1] = lane
  ages[#ages + 1] = string.format('%.17g', due_at)
end

local counts = {}
if args[1] then
  for _, minute in ipairs(redis.call('ZRANGEBYSCORE', P .. 'minutes', args[1], '+inf')) do
    counts[#counts + 1] = minute
    counts[#counts + 1] = redis.call('HGETALL', P .. 'minute:' .. minute)
  end
end

return {
  string.format('%.17g', now), redis.call('HGETALL', P .. 'tally'), redis.call('HGETALL', P .. 'lane_name'),
  redis.call('HGETALL', P .. 'worker'), counts, ages, redis.call('HGETALL', P .. 'minute:0'),
}
