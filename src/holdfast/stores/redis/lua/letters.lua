-- Dead letters, counted by cause as they come and go. All with one fingerprint, queue, task, tenant and failure type are
-- of one cause, which goes with its last letter.

local HOUR_S = 3600

-- A job was given up just now; the text is that of its latest failure, if it had one.
local function add_letter(id, job, text)
  local failure = text and cmsgpack.unpack(text)
  local facts = parts_of(redis.call('HGET', P .. 'job', id))
  local fingerprint = failure and failure[5] or ''
  local name = cmsgpack.pack({ fingerprint, facts[2], facts[1], facts[4], failure and failure[1] or '' })
  local cause = redis.call('HGET', P .. 'cause', name)
  if not cause then
    cause = redis.call('HINCRBY', P .. 'meta', 'cause', 1)
    redis.call('HSET', P .. 'cause', name, cause)
    redis.call('HSET', P .. 'cause_name', cause, name)
  end
  redis.call('ZADD', P .. 'letters:' .. cause, job[SEQ], id)
  local at = string.format('%.17g', job[CHANGED])
  redis.call('ZADD', P .. 'letters_at:' .. cause, at, id)
  redis.call('ZADD', P .. 'fingerprint_at:' .. fingerprint, at, id)
  local hour = math.floor(job[CHANGED] / HOUR_S)
  redis.call('HINCRBY', P .. 'letter_hour:' .. hour, cause, 1)
  redis.call('ZADD', P .. 'letter_hours', hour, hour)
  redis.call('HSET', P .. 'more:' .. id, 'cause', cause)
  job[MORE] = 1
end

-- It is a dead letter no more. Hours that nobody is told of are not counted any longer.
local function forget_letter(id, job)
  local cause = redis.call('HGET', P .. 'more:' .. id, 'cause')
  if not cause then
    return
  end
  redis.call('HDEL', P .. 'more:' .. id, 'cause')
  redis.call('ZREM', P .. 'letters:' .. cause, id)
  redis.call('ZREM', P .. 'letters_at:' .. cause, id)
  local name = redis.call('HGET', P .. 'cause_name', cause)
  redis.call('ZREM', P .. 'fingerprint_at:' .. cmsgpack.unpack(name)[1], id)
  local hour = P .. 'letter_hour:' .. math.floor(job[CHANGED] / HOUR_S)
  if redis.call('HEXISTS', hour, cause) == 1 and redis.call('HINCRBY', hour, cause, -1) <= 0 then
    redis.call('HDEL', hour, cause)
  end
  if redis.call('EXISTS', P .. 'letters:' .. cause) == 0 then
    redis.call('HDEL', P .. 'cause', name)
    redis.call('HDEL', P .. 'cause_name', cause)
  end
end
