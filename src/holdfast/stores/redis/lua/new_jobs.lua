-- Remembers new jobs: all or none, each id once, each idempotency key once.
-- args[1]: how many lanes; their names are the first texts. args[2]: jobs as {id, lane, rank, delay_s, has key, nil
-- or the names of its owners as they are marked}, whose own texts follow in order: the size of the facts, the facts, the
-- payload.
-- Answers nothing when all were new; else for each a sign (n new, o old, c conflict), an id and a state.
-- enqueue_ended.lua is told args[3] too, the ends of some of them, and args[4], how far workers' clocks may be behind; it
-- always answers for each.

local facts_at = 2 + args[1]

-- Those whose idempotency key is no longer held, and is another's from now on.
local freed = {}

-- Who holds an idempotency key: id, payload, state; nil when nobody does.
local function holder_of(scope)
  local id = redis.call('HGET', P .. 'key', scope)
  local text = id and redis.call('HGET', P .. 'state', id)
  if not text then
    return nil
  end
  local job = read(text)
  if job[STATE] >= COMPLETED and job[CHANGED] + window <= now then
    job[KEYED] = 0
    freed[#freed + 1] = { id, written(job) }
    return nil
  end
  local _, payload = parts_of(redis.call('HGET', P .. 'job', id))
  return { id, payload, job[STATE] }
end

-- What to answer, which of the jobs to add, and the keys that these hold then; none of it when there is a conflict.
local function look()
  local ids = {}
  for i = 1, #jobs do
    ids[i] = jobs[i][1]
  end
  local known = read_many('state', ids)
  local seen, holders, scopes = {}, {}, {}
  local answers, added = {}, {}
  local is_conflict = false

  for i = 1, #jobs do
    local id = ids[i]
    local sign, holder, state = 'n', id, QUEUED
    if known[i] then
      sign, state = 'o', read(known[i])[STATE]
    elseif seen[id] then
      sign = 'o'
    elseif jobs[i][5] then
      local facts, payload = parts_of(ARGV[facts_at + i])
      local scope = scope_of(facts)
      local held = holders[scope] or holder_of(scope)
      if held then
        holder, state = held[1], held[3]
        sign = held[2] == payload and 'o' or 'c'
        is_conflict = is_conflict or sign == 'c'
      else
        holders[scope] = { id, payload, QUEUED }
        scopes[#scopes + 1] = scope
        scopes[#scopes + 1] = id
      end
    end
    if sign == 'n' then
      seen[id] = true
      added[#added + 1] = i
    end
    answers[#answers + 1] = sign
    answers[#answers + 1] = holder
    answers[#answers + 1] = state
  end
  if is_conflict then
    return answers, {}, {}
  end
  return answers, added, scopes
end

local function add(added, scopes)
  for _, one in ipairs(freed) do
    keep_state(one[1], one[2])
  end
  local seq = redis.call('HINCRBY', P .. 'meta', 'seq', #added) - #added
  local numbers = {}
  for i = 1, args[1] do
    numbers[i] = lane_of(ARGV[2 + i])
  end
  local texts, ages, marks, marked, block = {}, {}, {}, {}, -1

  local function mark(name)
    if not marked[name] then
      marked[name] = true
      marks[#marks + 1] = 0
      marks[#marks + 1] = mark_of(type(name) == 'number' and 'l' .. name or name, block)
    end
  end

  for n = 1, #added do
    local job = jobs[added[n]]
    local id, lane = job[1], numbers[job[2]]
    seq = seq + 1
    local middle = middle_of(job, lane, seq)
    keep_state(id, front .. middle .. tail)
    line_up(lane, place_in(middle, id), job[4] > 0 and now + job[4])
    tally(lane, QUEUED, 1)
    if seq >= BLOCK * (block + 1) then
      block, marked = math.floor(seq / BLOCK), {}
    end
    mark(lane)
    if job[6] then
      for _, owner in ipairs(job[6]) do
        mark(owner)
      end
    end
    texts[2 * n - 1], texts[2 * n] = id, ARGV[facts_at + added[n]]
    ages[2 * n - 1], ages[2 * n] = seq, id
  end
  write_many('HSET', 'job', texts)
  write_many('ZADD', 'all', ages)
  write_many('ZADD', 'marks', marks)
  write_many('HSET', 'key', scopes)
  is_news = true
  flush()
end
