-- Claims jobs: looks at the heads of the open lanes, and takes by priority, due time and age within the caps.
-- A wish is {worker, token, limit, queues or nil, caps, is alone, how many of one lane or nil}.

local MOST_LOOKED_INTO, MOST_PASSED_OVER = 256, 1000
local PROMOTED_AT_ONCE, SOON_S, IDLE_S = 1000, 0.02, 86400

-- When the next delayed job is due; nil when there is none.
local function next_due()
  return tonumber(redis.call('ZRANGE', P .. 'delayed', 0, 0, 'WITHSCORES')[2])
end

-- Move to their lanes the delayed jobs whose time has come; answers with when the next one is due.
local function promote(limit)
  local first_due_at = next_due()
  if not first_due_at or first_due_at > now then
    return first_due_at
  end
  local most = math.max(PROMOTED_AT_ONCE, 2 * limit)
  local places = redis.call('ZRANGEBYSCORE', P .. 'delayed', '-inf', now, 'LIMIT', 0, most)
  local ids = {}
  for i = 1, #places do
    ids[i] = string.sub(places[i], 25)
  end
  local texts = read_many('state', ids)
  for i = 1, #ids do
    if texts[i] then
      line_up(struct.unpack('>I4', texts[i], LANE_AT), places[i])
    end
  end
  redis.call('ZREMRANGEBYRANK', P .. 'delayed', 0, #places - 1)
  flush_ready()
  return next_due()
end

-- Whether a claim may take from a lane, and which of its gates are capped.
local function look_at(name, queues, caps)
  local parts = cmsgpack.unpack(name)
  if queues and not queues[parts[1]] then
    return nil
  end
  parts[1], parts[2] = 'queue:' .. parts[1], 'task:' .. parts[2]
  local capped = {}
  for i = 1, #parts do
    local room = caps[parts[i]]
    if room then
      if room <= 0 then
        return nil
      end
      capped[#capped + 1] = parts[i]
    end
  end
  return capped
end

local function open_of(numbers, queues, caps)
  local lanes = {}
  if not queues and next(caps) == nil then
    for i = 1, math.min(#numbers, MOST_LOOKED_INTO) do
      lanes[i] = { number = numbers[i], capped = {}, taken = 0 }
    end
    return lanes, #lanes
  end
  local names = read_many('lane_name', numbers)
  for i = 1, #numbers do
    local capped = look_at(names[i], queues, caps)
    if capped then
      lanes[#lanes + 1] = { number = numbers[i], capped = capped, taken = 0 }
      if #lanes == MOST_LOOKED_INTO then
        return lanes, i
      end
    end
  end
  return lanes, #numbers
end

-- Lanes with a ready job and no gate that is shut, up to a bound; whether there may be more. Beyond the bound the
-- worker's next call goes on where this one stopped, so that every lane has its turn; once it has passed all of them
-- there are no more.
local function lanes_worth_a_look(worker, queues, caps)
  local numbers = redis.call('ZRANGE', P .. 'ready', 0, MOST_LOOKED_INTO)
  if #numbers <= MOST_LOOKED_INTO then
    return open_of(numbers, queues, caps), false
  end
  local turn, n_passed = struct.unpack('>dd', redis.call('HGET', P .. 'turns', worker) or string.rep('\0', 16))
  numbers = redis.call('ZRANGEBYSCORE', P .. 'ready', '(' .. turn, '+inf', 'LIMIT', 0, MOST_PASSED_OVER)
  local rest = redis.call('ZRANGEBYSCORE', P .. 'ready', '-inf', turn, 'LIMIT', 0, MOST_PASSED_OVER - #numbers)
  for i = 1, #rest do
    numbers[#numbers + 1] = rest[i]
  end
  local lanes, n = open_of(numbers, queues, caps)
  n_passed = #lanes > 0 and n or n_passed + n
  local is_cut = n_passed < redis.call('ZCARD', P .. 'ready')
  redis.call('HSET', P .. 'turns', worker, struct.pack('>dd', numbers[n], is_cut and n_passed or 0))
  return lanes, is_cut
end

-- ---------------------------------------------------------------- the order over several lanes: a heap of their heads

local function is_before(one, other)
  if one.rank ~= other.rank then
    return one.rank < other.rank
  elseif one.due ~= other.due then
    return one.due < other.due
  end
  return one.seq < other.seq
end

-- Go to the next job of a lane; false when it has no more, or has given as many as it may.
local function step(lane, size, most)
  if lane.taken >= most then
    return false
  end
  lane.at = lane.at and lane.at + 1 or 1
  if not lane.heads or lane.at > #lane.heads then
    if lane.heads and #lane.heads < size then
      return false
    end
    local last = lane.taken + math.min(size, most - lane.taken) - 1
    lane.heads = redis.call('ZRANGE', P .. 'ready:' .. lane.number, lane.taken, last)
    lane.at = 1
    if #lane.heads == 0 then
      return false
    end
  end
  lane.rank, lane.due, lane.seq = struct.unpack('>ddd', lane.heads[lane.at])
  return true
end

local function sift_down(heap, i)
  local one = heap[i]
  while true do
    local below = 2 * i
    if below > #heap then
      break
    end
    if below < #heap and is_before(heap[below + 1], heap[below]) then
      below = below + 1
    end
    if not is_before(heap[below], one) then
      break
    end
    heap[i] = heap[below]
    i = below
  end
  heap[i] = one
end

local function drop_first(heap)
  heap[1] = heap[#heap]
  heap[#heap] = nil
  if #heap > 1 then
    sift_down(heap, 1)
  end
end

local function merge(lanes, limit, room, most)
  local size = math.ceil(limit / #lanes) + 1
  local heap, ids = {}, {}
  for i = 1, #lanes do
    if step(lanes[i], size, most) then
      heap[#heap + 1] = lanes[i]
    end
  end
  for i = math.floor(#heap / 2), 1, -1 do
    sift_down(heap, i)
  end
  while #heap > 0 and #ids < limit do
    local lane = heap[1]
    local is_open = true
    for _, gate in ipairs(lane.capped) do
      is_open = is_open and room[gate] > 0
    end
    if is_open then
      for _, gate in ipairs(lane.capped) do
        room[gate] = room[gate] - 1
      end
      ids[#ids + 1] = string.sub(lane.heads[lane.at], 25)
      lane.taken = lane.taken + 1
      if step(lane, size, most) then
        sift_down(heap, 1)
      else
        drop_first(heap)
      end
    else
      drop_first(heap)
    end
  end
  return ids
end

local function first_of(lane, limit, room)
  for _, gate in ipairs(lane.capped) do
    limit = math.min(limit, room[gate])
  end
  local ids = redis.call('ZRANGE', P .. 'ready:' .. lane.number, 0, limit - 1)
  for i = 1, #ids do
    ids[i] = string.sub(ids[i], 25)
  end
  lane.taken = #ids
  return ids
end

-- Take out what this claim may have, in its order.
local function choose(lanes, limit, room, per_lane)
  local most = per_lane and math.min(limit, per_lane) or limit
  if #lanes == 0 or most <= 0 then
    return {}
  end
  local ids = #lanes == 1 and first_of(lanes[1], most, room) or merge(lanes, limit, room, most)
  for i = 1, #lanes do
    local lane = lanes[i]
    if lane.taken > 0 then
      redis.call('ZREMRANGEBYRANK', P .. 'ready:' .. lane.number, 0, lane.taken - 1)
      if redis.call('EXISTS', P .. 'ready:' .. lane.number) == 0 then
        redis.call('ZREM', P .. 'ready', lane.number)
      end
    end
  end
  return ids
end

-- The states of jobs as they are claimed. One that never ran before differs from its old state in the front, which is
-- the same for all such jobs, and in its texts.
local function take(chosen, worker, token, is_alone)
  local alone = is_alone and 1 or 0
  local front = struct.pack(FRONT, RUNNING, 0, 0, alone, 0, 0, now, 0, -1, -1, 1, 0, 0)
  local tail = struct.pack(TAIL, #token, token, 0, '', #worker, worker)
  local old, ids, texts = read_many('state', chosen), {}, {}
  for i = 1, #chosen do
    local text = old[i]
    if text then
      local state, settled = string.byte(text, 1, 2)
      local lane = struct.unpack('>I4', text, LANE_AT)
      local job = settled > 0 and read(text)
      if job and job[SETTLED_BY] == token then
        line_up(lane, place_of(chosen[i], job)) -- this claim comes late, and again
      else
        tally(lane, state, -1)
        tally(lane, RUNNING, 1)
        if job then
          job[STATE], job[TOKEN], job[WORKER], job[ALONE] = RUNNING, token, worker, alone
          job[ATTEMPT], job[CHANGED] = job[ATTEMPT] + 1, now
          text = written(job)
        else
          text = front .. string.sub(text, MIDDLE_AT, TAIL_AT - 1) .. tail
        end
        ids[#ids + 1] = chosen[i]
        texts[#texts + 1] = text
        keep_state(chosen[i], text)
      end
    end
  end
  if #ids > 0 then
    hold(token, worker, ids)
  end
  return ids, texts
end

local function set_of(names)
  if not names then
    return nil
  end
  local set = {}
  for i = 1, #names do
    set[names[i]] = true
  end
  return set
end

-- What the claim brings, and the seconds until a delayed job is due where it brings less than it may. One that comes a
-- second time brings what it brought: nobody may wait for the answer any more, and would run what is new in it.
local function claim(wish, is_first)
  local worker, token, limit, caps = wish[1], wish[2], wish[3], wish[5]
  local ids, texts, next_due_at, is_cut = {}, {}, nil, false
  local used = redis.call('HMGET', P .. 'claim:' .. token, 'worker', 'ids')
  local is_alive = redis.call('ZSCORE', P .. 'leases', worker)
  if is_first and is_alive and not used[1] and limit > 0 and not is_late(token, worker) then
    next_due_at = promote(limit)
    local lanes
    lanes, is_cut = lanes_worth_a_look(worker, set_of(wish[4]), caps)
    local chosen = choose(lanes, limit, caps, wish[7])
    if #chosen > 0 then
      ids, texts = take(chosen, worker, token, wish[6])
    end
  else
    next_due_at = next_due()
    if is_alive and used[1] == worker then
      ids, texts = held_under(token, used[2])
    end
  end
  if #ids >= limit then
    return ids, texts, nil
  end
  redis.call('SET', P .. 'idle', '', 'EX', IDLE_S)
  if is_cut then
    next_due_at = math.min(next_due_at or math.huge, now + SOON_S)
  end
  return ids, texts, next_due_at and math.max(0, next_due_at - now)
end
