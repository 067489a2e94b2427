-- Where jobs are: of several lists, each job's seq and id, the newest first.
-- args: 1 'indexes', 'blocks', 'between' or 'open', and what it needs.

local answer = {}

-- 2 the names of sorted sets by seq, 3 before which seq, 4 how many of each.
local function look_into_indexes(names, before, each)
  for i = 1, #names do
    answer[i] = redis.call('ZREVRANGEBYSCORE', P .. names[i], '(' .. before, '-inf', 'WITHSCORES', 'LIMIT', 0, each)
  end
end

-- 2 names as they are marked, 3 before which block, 4 how many of each: the numbers of the blocks.
local function look_for_blocks(names, before, each)
  for i = 1, #names do
    local blocks = {}
    local from, to = '(' .. mark_of(names[i], before), '[' .. mark_of(names[i], 0)
    for _, mark in ipairs(redis.call('ZREVRANGEBYLEX', P .. 'marks', from, to, 'LIMIT', 0, each)) do
      blocks[#blocks + 1] = struct.unpack('>I4', mark, #mark - 3)
    end
    answer[i] = blocks
  end
end

-- 2 the numbers of blocks, newest first, 3 before which seq.
local function look_into_blocks(blocks, before)
  for i = 1, #blocks do
    local first = BLOCK * blocks[i]
    local last = math.min(before - 1, first + BLOCK - 1)
    answer[i] = redis.call('ZREVRANGEBYSCORE', P .. 'all', last, first, 'WITHSCORES')
  end
end

-- Every job that has not ended, out of what says so of each: 2 lanes or nil, 3 whether ready ones and 4 whether running ones
-- are wanted, 5 how many are too many. In no order, and nothing when they are too many.
local function look_for_open(lanes, are_ready, are_running, most)
  local pairs_of, n = {}, 0
  local function add_places(places)
    for i = 1, #places do
      pairs_of[#pairs_of + 1] = string.sub(places[i], 25)
      pairs_of[#pairs_of + 1] = string.format('%.0f', (struct.unpack('>d', places[i], 17)))
    end
  end
  if are_ready then
    lanes = lanes or redis.call('ZRANGE', P .. 'ready', 0, most)
    n = redis.call('ZCARD', P .. 'delayed') + #lanes
    for i = 1, #lanes do
      n = n + redis.call('ZCARD', P .. 'ready:' .. lanes[i])
    end
    if n > most then
      answer = { 0 }
      return
    end
    add_places(redis.call('ZRANGE', P .. 'delayed', 0, -1))
    for i = 1, #lanes do
      add_places(redis.call('ZRANGE', P .. 'ready:' .. lanes[i], 0, -1))
    end
  end
  if are_running then
    local tokens = redis.call('ZRANGE', P .. 'orphans', 0, most)
    for _, worker in ipairs(redis.call('ZRANGE', P .. 'leases', 0, most)) do
      for _, token in ipairs(redis.call('ZRANGE', P .. 'claims:' .. worker, 0, most)) do
        tokens[#tokens + 1] = token
      end
    end
    for i = 1, #tokens do
      local packed = redis.call('HGET', P .. 'claim:' .. tokens[i], 'ids')
      local ids, texts = {}, {}
      if packed then
        ids, texts = held_under(tokens[i], packed)
      end
      for k = 1, #ids do
        pairs_of[#pairs_of + 1] = ids[k]
        pairs_of[#pairs_of + 1] = string.format('%.0f', read(texts[k])[SEQ])
      end
    end
  end
  answer = { 1, pairs_of }
end

if args[1] == 'indexes' then
  look_into_indexes(args[2], string.format('%.0f', args[3]), args[4])
elseif args[1] == 'blocks' then
  look_for_blocks(args[2], args[3], args[4])
elseif args[1] == 'between' then
  look_into_blocks(args[2], args[3])
else
  look_for_open(args[2], args[3], args[4], args[5])
end
return answer
