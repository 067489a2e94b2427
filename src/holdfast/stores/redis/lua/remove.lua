-- Removes jobs that have ended, with all that belongs to them.

local removed_ids = {}

local function remove(id, job)
  if job[KEYED] == 1 then
    local scope = scope_of((parts_of(redis.call('HGET', P .. 'job', id))))
    if redis.call('HGET', P .. 'key', scope) == id then -- the key of a job long ended may be another's by now
      redis.call('HDEL', P .. 'key', scope)
    end
  end
  if job[STATE] == DEAD_LETTER then
    forget_letter(id, job)
  end
  if job[MORE] == 1 then
    redis.call('DEL', P .. 'more:' .. id, P .. 'attempts:' .. id)
  end
  removed_ids[#removed_ids + 1] = id
  if GIVEN_UP[job[STATE]] then
    redis.call('ZREM', P .. GIVEN_UP[job[STATE]], id)
  end
  tally(job[LANE], job[STATE], -1)
end

local function flush_removed()
  write_many('HDEL', 'job', removed_ids)
  write_many('HDEL', 'state', removed_ids)
  write_many('ZREM', 'all', removed_ids)
  removed_ids = {}
end
