-- Reads jobs for people.

-- Of each job its id, its texts and what else is known of it: {reason, failure, first_failed_at, payload, progress,
-- replays}, and with its attempts these too.
local function records_of(ids, facts, texts, with_attempts)
  local answer = {}
  for i = 1, #ids do
    local more, attempts = {}, {}
    if read(texts[i])[MORE] == 1 then
      local key = P .. 'more:' .. ids[i]
      more = redis.call('HMGET', key, 'reason', 'failure', 'first_failed_at', 'payload', 'progress', 'replays')
      if with_attempts then
        attempts = redis.call('LRANGE', P .. 'attempts:' .. ids[i], 0, -1)
      end
    end
    answer[i] = { ids[i], facts[i], texts[i], more, attempts }
  end
  return answer
end
