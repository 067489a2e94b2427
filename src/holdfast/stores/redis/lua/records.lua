-- Reads jobs for people.

-- Of each job its id, its texts and what else is known of it: {reason, failure, first_failed_at, payload, progress,
-- replays}; of the whole one also its attempts, and where it has notes all the fields that these are among.
local function records_of(ids, facts, texts, is_whole)
  local answer = {}
  for i = 1, #ids do
    local more, attempts, noted = {}, {}, {}
    local job = read(texts[i])
    if job[MORE] == 1 then
      local key = P .. 'more:' .. ids[i]
      more = redis.call('HMGET', key, 'reason', 'failure', 'first_failed_at', 'payload', 'progress', 'replays')
      if is_whole then
        attempts = redis.call('LRANGE', P .. 'attempts:' .. ids[i], 0, -1)
      end
      if is_whole and job[NOTED] == 1 then
        noted = redis.call('HGETALL', key)
      end
    end
    answer[i] = { ids[i], facts[i], texts[i], more, attempts, noted }
  end
  return answer
end
