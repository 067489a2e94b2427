-- What there is in some lists of letters. args: 1 their names, 2 since and 3 until when or nil, 4 the oldest and 5 the newest hour to
-- be counted, where there is a time.
-- Answers for each of them: how many, when the first and the last were given up, the id and the seq of the last, and with a
-- time the hours, each with how many.

local since, before = args[2] or '-inf', args[3] and '(' .. string.format('%.17g', args[3]) or '+inf'
if args[2] then
  since = string.format('%.17g', args[2])
end

-- How many in each hour; all of them are between the first and the last.
local function hours_of(letters, first_at, last_at)
  local counts = {}
  for hour = math.max(args[4], math.floor(first_at / HOUR_S)), math.min(args[5], math.floor(last_at / HOUR_S)) do
    local from, to = hour * HOUR_S, (hour + 1) * HOUR_S
    if args[2] and args[2] > from then
      from = args[2]
    end
    if args[3] and args[3] < to then
      to = args[3]
    end
    local n = 0
    if from < to then
      n = redis.call('ZCOUNT', letters, string.format('%.17g', from), '(' .. string.format('%.17g', to))
    end
    counts[#counts + 1] = hour
    counts[#counts + 1] = n
  end
  return counts
end

local answer = {}
for i, name in ipairs(args[1]) do
  local letters = P .. name
  local is_all = not args[2] and not args[3]
  local n = is_all and redis.call('ZCARD', letters) or redis.call('ZCOUNT', letters, since, before)
  if n > 0 then
    local first = redis.call('ZRANGEBYSCORE', letters, since, before, 'WITHSCORES', 'LIMIT', 0, 1)
    local last = redis.call('ZREVRANGEBYSCORE', letters, before, since, 'WITHSCORES', 'LIMIT', 0, 1)
    local seq = redis.call('ZSCORE', P .. 'dead_letter', last[1])
    answer[i] = { n, first[2], last[2], last[1], seq, is_all and {} or hours_of(letters, first[2], last[2]) }
  else
    answer[i] = { 0 }
  end
end
return answer
