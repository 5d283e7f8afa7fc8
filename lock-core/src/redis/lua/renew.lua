-- Raises the leases of many locks, and makes the server tell of the next change to them.
--
-- KEYS[i]      a lock
-- ARGV[1]      'track' on a connection with CLIENT TRACKING, otherwise empty
-- ARGV[1+i]    its owner, 32 hexadecimal digits and the '|' that follows them in the value
-- ARGV[1+n+i]  its ttl, ms, after the n owners; only the first, if that is the ttl of all
--
-- Returns  of each lock that was not renewed: its number, then 0 if it is gone or somebody else's, or the
--          text of an error.
--
-- Atomic per key, because between reading the owner and raising the expiry the lease may pass to
-- another; one script for all of them, because a round trip per lock is what makes watchdogs late.
-- An error of one key is that key's answer and leaves the others alone.

local pcall, find, type = redis.pcall, string.find, type
local count, track = #KEYS, ARGV[1] == 'track'
local version = redis.REDIS_VERSION_NUM
-- PEXPIRE knows GT and NX from 7.0 on, and scripts the version.
local has_gt = version ~= nil

-- All values at once, a key of another type being none. Before 7.2 every read of a script has the
-- server remember all of its keys: with a read per lock that is the most expensive part by far.
local values = pcall('MGET', unpack(KEYS))
if values.err then
  -- Not permitted. Whoever wants to track learns of it, and does without.
  if track then
    return values
  end
  for i = 1, count do
    values[i] = pcall('GET', KEYS[i])
  end
end

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

local answers = {}
for i = 1, count do
  local value, answer = values[i], 0
  if type(value) == 'table' then
    -- A key of another type is not ours any more, which is a definite answer.
    answer = find(value.err, 'WRONGTYPE', 1, true) and 0 or value.err
  elseif value and find(value, ARGV[1 + i], 1, true) == 1 then
    local raised = raise(KEYS[i], ARGV[1 + count + i] or ARGV[2 + count])
    answer = type(raised) == 'table' and raised.err
  end
  if answer then
    answers[#answers + 1] = i
    answers[#answers + 1] = answer
  end
end
if track then
  -- Last of all: a write ends what was remembered before it, our own write too.
  pcall('EXISTS', unpack(KEYS, 1, version and version < 0x070200 and 1 or count))
end
return answers
