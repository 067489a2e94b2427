-- Looks at some jobs, newest first, and passes over most of those that are not wanted, so that they need not travel.
-- args: 1 the index to look into, 2 seq before which to begin or '+inf', 3 how many to look at, 4 by number the states
-- that are wanted or nil, 5 queue or '', 6 task or '', 7 since and 8 until when or nil, 9 other facts that are wanted, by
-- their place.
-- Answers with the records, each one's seq, and where it stopped: '' at the end.

local wanted, queue, task, most = args[4], args[5], args[6], args[3]
local from_at, to_at, wanted_facts = args[7], args[8], args[9]
local lanes = {}

local function is_lane_wanted(number)
  if lanes[number] == nil then
    local name = cmsgpack.unpack(redis.call('HGET', P .. 'lane_name', number))
    lanes[number] = (queue == '' or name[1] == queue) and (task == '' or name[2] == task)
  end
  return lanes[number]
end

local function is_time_wanted(job)
  local instant = job[STATE] >= COMPLETED and job[CHANGED] or job[CREATED]
  return not (from_at and instant < from_at) and not (to_at and instant >= to_at)
end

local function are_facts_wanted(text)
  local size = struct.unpack('>I4', text)
  local facts = cmsgpack.unpack(string.sub(text, 5, 4 + size))
  for place, fact in pairs(wanted_facts) do
    if facts[place] ~= fact then
      return false
    end
  end
  return true
end

local before = args[2] == '+inf' and '+inf' or '(' .. args[2]
local found = redis.call('ZREVRANGEBYSCORE', P .. args[1], before, '-inf', 'WITHSCORES', 'LIMIT', 0, most)
local all, ids, texts, ages = {}, {}, {}, {}
for i = 1, #found, 2 do
  all[#all + 1] = found[i]
end
local stored = read_many('state', all)
for i = 1, #all do
  local job = stored[i] and read(stored[i])
  if job and (not wanted or wanted[job[STATE] + 1]) and ((queue == '' and task == '') or is_lane_wanted(job[LANE]))
    and is_time_wanted(job) then
    ids[#ids + 1] = all[i]
    texts[#texts + 1] = stored[i]
    ages[#ages + 1] = found[2 * i]
  end
end
local facts = read_many('job', ids)
if next(wanted_facts) ~= nil then
  local some_ids, some_facts, some_texts, some_ages = {}, {}, {}, {}
  for i = 1, #ids do
    if are_facts_wanted(facts[i]) then
      local n = #some_ids + 1
      some_ids[n], some_facts[n], some_texts[n], some_ages[n] = ids[i], facts[i], texts[i], ages[i]
    end
  end
  ids, facts, texts, ages = some_ids, some_facts, some_texts, some_ages
end
return { records_of(ids, facts, texts, false), ages, #all == most and found[2 * #all] or '' }
