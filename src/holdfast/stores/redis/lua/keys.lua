-- Idempotency keys.

-- A job's text is the size of its facts, the facts and the payload. Facts: 1 task, 2 queue, 3 priority, 4 tenant,
-- 5 user, 6 project, 7 idempotency key, 8 trace.
local function parts_of(text)
  local size = struct.unpack('>I4', text)
  return cmsgpack.unpack(string.sub(text, 5, 4 + size)), string.sub(text, 5 + size)
end

-- Tenant, task and key in one text; no two different ones make the same.
local function scope_of(facts)
  local tenant, task, key = facts[4], facts[1], facts[7]
  return #tenant .. ':' .. tenant .. #task .. ':' .. task .. key
end
