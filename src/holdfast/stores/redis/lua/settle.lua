-- Settles claimed jobs, each guarded by its id, its state and the token of the lease.
-- A settlement is {id, token, number of the change, state, keep_s or -1, elapsed_s, started_at or -1, text of the
-- result or 0}, and where there is more to say also {…, delay_s or -1 where it ends, reason, is refunded, is suspect,
-- text of the attempt or 0, text of the failure or 0, failed_at}.

local RELEASE = 4

-- What few settlements have to say, and what only jobs know that had something to say before.
local function settle_more(id, job, one)
  local more = P .. 'more:' .. id
  local reason, attempt, failure = one[10] or '', one[13] or 0, one[14] or 0
  if job[MORE] == 1 then
    redis.call('HDEL', more, 'reason', 'blame')
  end
  if reason ~= '' then
    redis.call('HSET', more, 'reason', reason)
    job[MORE] = 1
  end
  if attempt > 0 then
    redis.call('RPUSH', P .. 'attempts:' .. id, ARGV[2 + attempt])
    job[MORE] = 1
  end
  if failure > 0 then
    redis.call('HSET', more, 'failure', ARGV[2 + failure])
    redis.call('HSETNX', more, 'first_failed_at', string.format('%.17g', one[15]))
    job[MORE] = 1
  end
end

local function settle_one(id, job, one)
  local number, state, keep_s, delay_s = one[3], one[4], one[5], one[9]
  tally(job[LANE], RUNNING, -1)
  tally(job[LANE], state, 1)
  job[STATE], job[SETTLED], job[CHANGED], job[ELAPSED] = state, number, now, one[6]
  job[SETTLED_BY], job[TOKEN] = job[TOKEN], ''
  if one[7] >= 0 then
    job[STARTED] = one[7]
  end
  job[HAS_RESULT] = one[8] > 0 and 1 or 0
  job[RESULT] = one[8] > 0 and ARGV[2 + one[8]] or ''
  job[SUSPECT], job[ORPHAN] = one[12] and 1 or 0, 0
  if number ~= RELEASE then
    job[ORPHANED] = 0
  end
  if one[11] then
    job[ATTEMPT] = job[ATTEMPT] - 1
  else
    job[RETRIES] = job[RETRIES] + 1
  end
  if job[MORE] == 1 or one[10] then
    settle_more(id, job, one)
  end
  if state == COMPLETED then
    forget_notes(id, job)
  end
  if state >= COMPLETED then
    job[KEEP] = keep_until(id, keep_s, job[KEYED] == 1)
  elseif number == RELEASE and delay_s <= 0 then
    line_up(job[LANE], place_of(id, job)) -- nobody ran it: it keeps its place
    is_news = true
  else
    job[DUE] = now + delay_s
    line_up(job[LANE], place_of(id, job), delay_s > 0 and job[DUE])
    is_news = true
  end
end

-- The state of a job that has completed and has nothing else to say, put together of the parts of its old one; nil when
-- this is not one, or not under this token.
local COMPLETED_FRONT = '>BBBBBBddddI4I4'

local function completed(id, text, one)
  local token = one[2]
  local at = TAIL_AT + 1 + #token
  if one[10] or string.byte(text, 1) ~= RUNNING or string.byte(text, MORE_AT) ~= 0
    or string.byte(text, TAIL_AT) ~= #token or string.sub(text, TAIL_AT + 1, at - 1) ~= token or token == '' then
    return nil
  end
  local _, _, _, is_alone, _, _, _, _, started_at, _, attempt, retries = struct.unpack(COMPLETED_FRONT, text)
  local keep = keep_until(id, one[5], string.byte(text, MIDDLE_AT) == 1)
  local lane = struct.unpack('>I4', text, LANE_AT)
  local result = one[8]
  tally(lane, RUNNING, -1)
  tally(lane, COMPLETED, 1)
  if one[7] >= 0 then
    started_at = one[7]
  end
  return struct.pack(
    FRONT, COMPLETED, one[3], 0, is_alone, 0, result > 0 and 1 or 0, now, one[6], started_at, keep, attempt,
    retries + 1, 0
  ) .. string.sub(text, MIDDLE_AT, TAIL_AT - 1) .. '\0' .. string.char(#token) .. token
    .. string.sub(text, at + 1 + string.byte(text, at)) .. (result > 0 and ARGV[2 + result] or '')
end

-- One sign for each: 1 it took effect, now or when it was sent before; 0 the lease was lost and nothing changed.
local function settle(settlements)
  local ids = {}
  for i = 1, #settlements do
    ids[i] = settlements[i][1]
  end
  local texts = read_many('state', ids)
  local latest, answers, given_up, released = {}, {}, {}, {}
  for i = 1, #settlements do
    local one, id = settlements[i], ids[i]
    local token = one[2]
    local text = latest[id] or texts[i]
    local settled = text and completed(id, text, one)
    answers[i] = '0'
    if text and not settled then
      local job = read(text)
      if job[STATE] == RUNNING and job[TOKEN] == token and token ~= '' then
        settle_one(id, job, one)
        if job[STATE] == DEAD_LETTER then
          local failure = one[14] or 0
          add_letter(id, job, failure > 0 and ARGV[2 + failure] or redis.call('HGET', P .. 'more:' .. id, 'failure'))
        end
        settled = written(job)
        local index = GIVEN_UP[job[STATE]]
        if index then
          given_up[#given_up + 1] = { index, job[SEQ], id }
        end
      elseif job[SETTLED] == one[3] and job[SETTLED_BY] == token and token ~= '' then
        answers[i] = '1' -- it was sent before
      end
    end
    if settled then
      latest[id] = settled
      keep_state(id, settled)
      released[token] = (released[token] or 0) + 1
      answers[i] = '1'
    end
  end
  for i = 1, #given_up do
    redis.call('ZADD', P .. given_up[i][1], given_up[i][2], given_up[i][3])
  end
  for token, n in pairs(released) do
    let_go(token, n)
  end
  return table.concat(answers)
end
