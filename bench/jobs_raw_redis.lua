-- Acknowledge what the last token holds, then claim the next in line under a new one.
-- KEYS: the queue (due times), the prefix of jobs. ARGV: last token, new token, now, limit, ids to acknowledge.
local queue, prefix = KEYS[1], KEYS[2]
local last, token, now, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local acknowledged = 0
for i = 5, #ARGV do
  local key = prefix .. ARGV[i]
  local held = redis.call('HMGET', key, 'state', 'token')
  if held[1] == '1' and held[2] == last then
    redis.call('HSET', key, 'state', '2')
    acknowledged = acknowledged + 1
  end
end
local claimed = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, limit)) do
  local key = prefix .. id
  local attempt = redis.call('HINCRBY', key, 'attempt', 1)
  redis.call('HSET', key, 'state', '1', 'token', token)
  local job = redis.call('HMGET', key, 'task', 'payload')
  claimed[#claimed + 1] = { id, job[1], job[2], attempt }
end
if #claimed > 0 then
  redis.call('ZREMRANGEBYRANK', queue, 0, #claimed - 1)
end
return { acknowledged, claimed }
