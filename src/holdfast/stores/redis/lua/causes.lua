-- The causes of dead letters by number, each with its name, and how many letters of each were given up in the last hours.
-- args: 1 the oldest hour, 2 the current one; nil where nobody needs them.

local hours = {}
for hour = args[1] or 1, args[2] or 0 do
  hours[#hours + 1] = redis.call('HGETALL', P .. 'letter_hour:' .. hour)
end
return { redis.call('HGETALL', P .. 'cause_name'), hours }
