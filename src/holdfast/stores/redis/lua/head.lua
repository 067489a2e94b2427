-- The head of every script: its arguments, the clock, and how the state of a job is written down.
-- KEYS[1] is the prefix of every key. ARGV[1] has what this script is told, ARGV[2] the offset of the clock, for how
-- long idempotency keys hold, the number of the call on its connection and the connection's name. Texts that are any
-- bytes follow from ARGV[3] on, and are told by their number, from 1.

local P = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local clock = redis.call('TIME')
local offset_s, window, call_number = struct.unpack('>ddd', ARGV[2])
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000 + offset_s

local QUEUED, RUNNING, RETRYING, WAITING, COMPLETED, FAILED, DEAD_LETTER, CANCELLED = 0, 1, 2, 3, 4, 5, 6, 7
local GIVEN_UP = { [FAILED] = 'failed', [DEAD_LETTER] = 'dead_letter', [CANCELLED] = 'cancelled' }

-- The places of a job's state; state.py has the same. What changes with every run comes first, in 48 bytes, then what
-- seldom does, in 40, then texts. SETTLED is the number of the latest settlement's change, SETTLED_BY its token; TOKEN
-- is that of the lease, while there is one. Instants that are not there are -1.
local FRONT, MIDDLE, TAIL = '>BBBBBBddddI4I4I2', '>BBBBI4dddd', '>Bc0Bc0Hc0'
local FORMAT = '>BBBBBBddddI4I4I2BBBBI4ddddBc0Bc0Hc0'
local CHANGED_AT, MIDDLE_AT, MORE_AT, LANE_AT, CREATED_AT, TAIL_AT = 7, 49, 52, 53, 81, 89
local STATE, SETTLED, SUSPECT, ALONE, ORPHAN, HAS_RESULT = 1, 2, 3, 4, 5, 6
local CHANGED, ELAPSED, STARTED, KEEP = 7, 8, 9, 10
local ATTEMPT, RETRIES, ORPHANED, KEYED, EDITED, NOTED, MORE, LANE, RANK, DUE = 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
local SEQ, CREATED, TOKEN, SETTLED_BY, WORKER, RESULT = 21, 22, 23, 24, 25, 26

-- Whether this call has not been done before, nor any that its connection sent after it. One that was held up on the way
-- may come long after its answer was given up, asked for again, and used.
local LINE_S = 3600

local function is_first_time()
  local line = P .. 'line:' .. string.sub(ARGV[2], 25)
  local latest = redis.call('SET', line, call_number, 'EX', LINE_S, 'GET')
  if latest and tonumber(latest) >= call_number then
    redis.call('SET', line, latest, 'EX', LINE_S)
    return false
  end
  return true
end

-- Wakes the workers that wait, if there are any.
local function tell()
  if redis.call('DEL', P .. 'idle') == 1 then
    redis.call('PUBLISH', P .. 'news', '')
  end
end
