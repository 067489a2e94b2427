-- Looks at some jobs, and passes over most of those that are not wanted, so that they need not travel.
-- args: 1 their ids, 2 how many are enough, 3 by number the states that are wanted or nil, 4 queue or '', 5 task or '',
-- 6 since and 7 until when or nil, 8 other facts that are wanted, by their place.
-- Answers with the records.

local all, enough, wanted, queue, task = args[1], args[2], args[3], args[4], args[5]
local from_at, to_at, wanted_facts = args[6], args[7], args[8]
local has_facts = next(wanted_facts) ~= nil
local lanes = {}

local function is_lane_wanted(number)
  if lanes[number] == nil then
    local name = cmsgpack.unpack(redis.call('HGET', P .. 'lane_name', number))
    lanes[number] = (queue == '' or name[1] == queue) and (task == '' or name[2] == task)
  end
  return lanes[number]
end

local function is_time_wanted(text)
  local instant = struct.unpack('>d', text, string.byte(text, 1) >= COMPLETED and CHANGED_AT or CREATED_AT)
  return not (from_at and instant < from_at) and not (to_at and instant >= to_at)
end

local function are_facts_wanted(id)
  local facts = parts_of(redis.call('HGET', P .. 'job', id))
  for place, fact in pairs(wanted_facts) do
    if facts[place] ~= fact then
      return false
    end
  end
  return true
end

local has_lanes, has_times = queue ~= '' or task ~= '', from_at or to_at
local ids, texts = {}, {}
local stored = read_many('state', all)
for i = 1, #all do
  local text = stored[i]
  if text and (not wanted or wanted[string.byte(text, 1) + 1])
    and (not has_lanes or is_lane_wanted((struct.unpack('>I4', text, LANE_AT)))) and (not has_times or is_time_wanted(text))
    and (not has_facts or are_facts_wanted(all[i])) then
    ids[#ids + 1] = all[i]
    texts[#texts + 1] = text
    if #ids >= enough then
      break
    end
  end
end
return records_of(ids, read_many('job', ids), texts, false)
