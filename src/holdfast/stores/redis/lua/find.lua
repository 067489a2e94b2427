-- Looks at some jobs, newest first, and passes over those of other states, queues and tasks.
-- args: 1 the index to look into, 2 seq before which to begin or '+inf', 3 how many to look at, 4 by number the states
-- that are wanted or nil, 5 queue or '', 6 task or ''.
-- Answers with the records, each one's seq, and where it stopped: '' at the end.

local wanted, queue, task, most = args[4], args[5], args[6], args[3]
local lanes = {}

local function is_lane_wanted(number)
  if lanes[number] == nil then
    local name = cmsgpack.unpack(redis.call('HGET', P .. 'lane_name', number))
    lanes[number] = (queue == '' or name[1] == queue) and (task == '' or name[2] == task)
  end
  return lanes[number]
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
  if job and (not wanted or wanted[job[STATE] + 1]) and ((queue == '' and task == '') or is_lane_wanted(job[LANE])) then
    ids[#ids + 1] = all[i]
    texts[#texts + 1] = stored[i]
    ages[#ages + 1] = found[2 * i]
  end
end
return { records_of(ids, read_many('job', ids), texts, false), ages, #all == most and found[2 * #all] or '' }
