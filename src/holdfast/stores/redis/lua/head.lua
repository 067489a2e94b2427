-- The head of every script: its arguments, the clock, and how the state of a job is written down.
-- KEYS[1] is the prefix of every key. ARGV[1] has what this script is told, ARGV[2] the offset of the clock and for how
-- long idempotency keys hold. Texts that are any bytes follow from ARGV[3] on, and are told by their number, from 1.

local P = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local clock = redis.call('TIME')
local offset_s, window = struct.unpack('>dd', ARGV[2])
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000 + offset_s

local QUEUED, RUNNING, RETRYING, WAITING, COMPLETED, FAILED, DEAD_LETTER, CANCELLED = 0, 1, 2, 3, 4, 5, 6, 7
local GIVEN_UP = { [FAILED] = 'failed', [DEAD_LETTER] = 'dead_letter', [CANCELLED] = 'cancelled' }

-- The places of a job's state; state.py has the same. What changes with every run comes first, in 48 bytes, then what
-- seldom does, in 40, then texts. SETTLED is the number of the latest settlement's change, SETTLED_BY its token; TOKEN
-- is that of the lease, while there is one. Instants that are not there are -1.
local FRONT, MIDDLE, TAIL = '>BBBBBBddddI4I4I2', '>BBBBI4dddd', '>Bc0Bc0Hc0'
local FORMAT = '>BBBBBBddddI4I4I2BBBBI4ddddBc0Bc0Hc0'
local MIDDLE_AT, MORE_AT, LANE_AT, TAIL_AT = 49, 52, 53, 89
local STATE, SETTLED, SUSPECT, ALONE, ORPHAN, HAS_RESULT = 1, 2, 3, 4, 5, 6
local CHANGED, ELAPSED, STARTED, KEEP = 7, 8, 9, 10
local ATTEMPT, RETRIES, ORPHANED, KEYED, EDITED, NOTED, MORE, LANE, RANK, DUE = 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
local SEQ, CREATED, TOKEN, SETTLED_BY, WORKER, RESULT = 21, 22, 23, 24, 25, 26

-- Wakes the workers that wait, if there are any.
local function tell()
  if redis.call('DEL', P .. 'idle') == 1 then
    redis.call('PUBLISH', P .. 'news', '')
  end
end
