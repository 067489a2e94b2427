-- What is to be known of a search before a job is looked at. args: 1 queue or '', 2 task or '', 3 by number the states that
-- are wanted or nil. Answers with the lanes of queue and task, and how many jobs of these states there are in them.

local queue, task, wanted = args[1], args[2], args[3]
local lanes, n = {}, 0
local names = redis.call('HGETALL', P .. 'lane_name')
for i = 1, #names, 2 do
  local name = cmsgpack.unpack(names[i + 1])
  if (queue == '' or name[1] == queue) and (task == '' or name[2] == task) then
    lanes[#lanes + 1] = tonumber(names[i])
    local kinds = {}
    for state = 0, 7 do
      if not wanted or wanted[state + 1] then
        kinds[#kinds + 1] = names[i] * 8 + state
      end
    end
    for _, some in ipairs(read_many('tally', kinds)) do
      n = n + (tonumber(some or 0) or 0)
    end
  end
end
return { lanes, n }
