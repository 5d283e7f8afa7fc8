-- Raises the leases of up to a hundred locks, and makes the server tell of the next change to them.
--
-- KEYS[i]      a lock
-- ARGV[2i-1]   its owner, 32 hexadecimal digits
-- ARGV[2i]     its ttl, ms
-- ARGV[2n+1]   after the n locks: 'track' on a connection with CLIENT TRACKING, otherwise nothing
--
-- Returns  of each lock that was not renewed: its number, then 0 if it is gone or somebody else's, or the
--          text of an error.
--
-- Atomic per key, because between reading the owner and raising the expiry the lease may pass to
-- another; one script for all of them, because a round trip per lock is what makes watchdogs late.
-- An error of one key is that key's answer and leaves the others alone.

local pcall, byte, find = redis.pcall, string.byte, string.find
local track = ARGV[2 * #KEYS + 1] == 'track'
-- All values at once, a key of another type being none. Before 7.2 every read of a script has the
-- server remember all of its keys: with a read per lock that is the most expensive part by far.
local values = pcall('MGET', unpack(KEYS))
-- PEXPIRE knows GT and NX from 7.0 on, and scripts the version.
local has_gt = redis.REDIS_VERSION_NUM ~= nil

-- A renewal that arrives late, with an older and shorter ttl, must not shorten the lease. Without
-- any expiry the lock would outlive its holder.
local function raise(key, ttl)
  if has_gt then
    local raised = pcall('PEXPIRE', key, ttl, 'GT')
    return raised == 0 and pcall('PEXPIRE', key, ttl, 'NX') or raised
  end
  local left = pcall('PTTL', key)
  if type(left) == 'table' or left >= tonumber(ttl) then
    return left
  end
  return pcall('PEXPIRE', key, ttl)
end

local answers, ours = {}, {}
for i = 1, #KEYS do
  local key, answer = KEYS[i], 0
  local value = values[i]
  if values.err then
    -- Not permitted. Whoever wants to track learns of it, and does without.
    value = track and values or pcall('GET', key)
  end
  if type(value) == 'table' then
    -- A key of another type is not ours any more, which is a definite answer.
    answer = string.find(value.err, 'WRONGTYPE', 1, true) and 0 or value.err
  elseif value and byte(value, 33) == 124 and find(value, ARGV[2 * i - 1], 1, true) == 1 then
    local raised = raise(key, ARGV[2 * i])
    answer = type(raised) == 'table' and raised.err
  end
  if answer then
    answers[#answers + 1] = i
    answers[#answers + 1] = answer
  elseif track then
    ours[#ours + 1] = key
  end
end
if #ours > 0 then
  -- Last of all: a write ends what was remembered before it, our own write too.
  pcall('EXISTS', unpack(ours))
end
return answers
