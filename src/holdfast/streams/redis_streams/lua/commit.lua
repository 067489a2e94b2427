-- Finish entries, and remember the counted attempts of those that are not finished, where they are still ours.
-- KEYS: B, then of each stream its key, retries and gone. ARGV: group, me, then for each stream its shard ('' when not
-- sharded), 1 where finished entries are deleted, how many are finished, their ids, how many words about attempts
-- follow, and these: an id and a number, by turns. Answers 1 for each stream that is ours, or else 0.
local group, me = ARGV[1], ARGV[2]
local is_here = is_member(me)
local answers, at = {}, 3

local function in_pieces(first, last, call)
  for from = first, last, MOST do
    call(from, math.min(from + MOST - 1, last))
  end
end

for n = 2, #KEYS, 3 do
  local key, retries, gone = KEYS[n], KEYS[n + 1], KEYS[n + 2]
  local shard, deletes, finished = ARGV[at], ARGV[at + 1] == '1', tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + finished
  local words = tonumber(ARGV[last + 1])
  at = last + 2 + words
  if is_here and (shard == '' or owner_of(shard) == me) then
    deletes = deletes and #redis.call('XINFO', 'GROUPS', key) == 1 -- what another group has not read is not ours alone
    local has_retries, has_gone = redis.call('EXISTS', retries) == 1, redis.call('EXISTS', gone) == 1
    in_pieces(first, last, function(from, to)
      redis.call('XACK', key, group, unpack(ARGV, from, to))
      if deletes then
        redis.call('XDEL', key, unpack(ARGV, from, to))
      end
      if has_retries then
        redis.call('HDEL', retries, unpack(ARGV, from, to))
        local deaths = {}
        for n = from, to do
          deaths[#deaths + 1] = ARGV[n] .. '!'
        end
        redis.call('HDEL', retries, unpack(deaths))
      end
      if has_gone then
        redis.call('HDEL', gone, unpack(ARGV, from, to))
      end
    end)
    in_pieces(last + 2, last + 1 + words, function(from, to)
      redis.call('HSET', retries, unpack(ARGV, from, to))
    end)
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = 0
  end
end
return answers
