-- What people do to jobs: cancel, replay, remove; each job by itself, guarded by its state.
-- args: 1 the change, 2 the states that it may start from, 3 ids, 4 reason, 5 keep_s or -1, 6 delay_s, 7 replay id,
-- 8 by id the texts of new payloads, 9 the name of the call.
-- Answers for each a sign (1 done, 0 not) and the state it is in now, or -1; the same when it is sent again.

local may_start, ids, reason, keep_s, delay_s = args[2], args[3], args[4], args[5], args[6]
local replay, payloads = args[7], args[8]
local said = redis.call('GET', P .. 'sent:' .. args[9])
if said then
  return cmsgpack.unpack(said)
end

local function cancel(id, job)
  take_away(id, job)
  say_why(id, job, reason)
  tally(job[LANE], job[STATE], -1)
  tally(job[LANE], CANCELLED, 1)
  job[STATE], job[CHANGED], job[ORPHAN] = CANCELLED, now, 0
  job[KEEP] = keep_until(id, keep_s, job[KEYED] == 1)
  redis.call('ZADD', P .. 'cancelled', job[SEQ], id)
  keep_state(id, written(job))
  return CANCELLED
end

local function payload_of(id, job)
  if job[EDITED] == 1 then
    return redis.call('HGET', P .. 'more:' .. id, 'payload')
  end
  local text = redis.call('HGET', P .. 'job', id)
  return string.sub(text, 5 + struct.unpack('>I4', text))
end

-- They stand in line in the order of the ids: each is due a moment after the one before.
local function back_to_queue(id, job, place)
  local text = payloads[id] and ARGV[2 + payloads[id]]
  if text and text ~= payload_of(id, job) then
    redis.call('HSET', P .. 'more:' .. id, 'payload', text)
    job[EDITED], job[MORE] = 1, 1
  end
  if replay ~= '' then
    redis.call('HSET', P .. 'more:' .. id, 'replay:' .. replay, '')
    job[MORE] = 1
  end
  redis.call('HINCRBY', P .. 'more:' .. id, 'replays', 1)
  job[MORE] = 1
  say_why(id, job, reason)
  redis.call('ZREM', P .. 'dead_letter', id)
  forget_letter(id, job)
  tally(job[LANE], DEAD_LETTER, -1)
  tally(job[LANE], QUEUED, 1)
  job[STATE], job[CHANGED], job[DUE], job[KEEP] = QUEUED, now, now + delay_s + 1e-6 * place, -1
  job[RETRIES], job[ELAPSED] = 0, 0
  keep_state(id, written(job))
  line_up(job[LANE], place_of(id, job), delay_s > 0 and job[DUE])
  is_news = true
  return QUEUED
end

local function change(id, place)
  local text = redis.call('HGET', P .. 'state', id)
  if not text then
    return 0, -1
  end
  local job = read(text)
  if not may_start[job[STATE] + 1] then
    return 0, job[STATE]
  elseif args[1] == 'cancel' then
    return 1, cancel(id, job)
  elseif args[1] == 'remove' then
    remove(id, job)
    return 1, -1
  elseif replay ~= '' and redis.call('HEXISTS', P .. 'more:' .. id, 'replay:' .. replay) == 1 then
    return 0, job[STATE]
  end
  return 1, back_to_queue(id, job, place)
end

go_on_when_full()
local answers = {}
for i = 1, #ids do
  answers[2 * i - 1], answers[2 * i] = change(ids[i], i)
  write_many('HSET', 'state', states) -- the same id may come twice
  states = {}
  flush_removed()
end
flush()
redis.call('SET', P .. 'sent:' .. args[9], cmsgpack.pack(answers), 'EX', 120)
return answers
