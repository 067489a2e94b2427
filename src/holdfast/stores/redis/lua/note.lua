-- Remembers what a running job wants remembered, if its lease holds.
-- args: 1 id, 2 token, 3 text of the checkpoint or 0, 4 name of the step or nil, 5 text of what it returned, 6 progress
-- or nil, 7 blame or nil.

local id, token = args[1], args[2]
local text = redis.call('HGET', P .. 'state', id)
local job = text and read(text)
if not job or token == '' or job[STATE] ~= RUNNING or job[TOKEN] ~= token then
  return 0
end
go_on_when_full()
local words = {}
if args[3] > 0 then
  words[#words + 1] = 'checkpoint'
  words[#words + 1] = ARGV[2 + args[3]]
end
if args[4] then
  words[#words + 1] = 'step:' .. args[4]
  words[#words + 1] = ARGV[2 + args[5]]
end
local has_notes = #words > 0
if args[6] then
  words[#words + 1] = 'progress'
  words[#words + 1] = string.format('%.17g', args[6])
end
if args[7] then
  words[#words + 1] = 'blame'
  words[#words + 1] = args[7]
end
if #words > 0 then
  write_many('HSET', 'more:' .. id, words)
  job[MORE] = 1
  job[NOTED] = has_notes and 1 or job[NOTED]
  keep_state(id, written(job))
  flush()
end
return 1
