-- Raises the leases of up to a hundred locks, and makes the server tell of the next change to them.
--
-- KEYS[i]      a lock
-- ARGV[2i-1]   its owner, 32 hexadecimal digits
-- ARGV[2i]     its ttl, ms
-- ARGV[2n+1]   after the n locks: 'track' on a connection with CLIENT TRACKING, otherwise nothing
--
-- Returns one answer per key: 1 renewed, 0 gone or somebody else's, or the text of an error.
--
-- Atomic per key, because between reading the owner and raising the expiry the lease may pass to
-- another; one script for all of them, because a round trip per lock is what makes watchdogs late.
-- An error of one key is that key's answer and leaves the others alone.

-- Before 7.2 every read of a script has the server remember all of its keys: with two reads per
-- lock that is the most expensive part by far. GETEX counts as a write, and changes nothing.
local track = ARGV[2 * #KEYS + 1] == 'track'
local READ = track and 'GETEX' or 'GET'

-- A renewal that arrives late, with an older and shorter ttl, must not shorten the lease. Without
-- any expiry the lock would outlive its holder.
local function raise(key, ttl)
  if track then
    local raised = redis.pcall('PEXPIRE', key, ttl, 'GT')
    return raised == 0 and redis.pcall('PEXPIRE', key, ttl, 'NX') or raised
  end
  local left = redis.pcall('PTTL', key)
  if type(left) == 'table' or left >= tonumber(ttl) then
    return left
  end
  return redis.pcall('PEXPIRE', key, ttl)
end

local ours = {}

local function renew(key, owner, ttl)
  local value = redis.pcall(READ, key)
  if type(value) == 'table' then
    -- A key of another type is not ours any more, which is a definite answer.
    return string.find(value.err, 'WRONGTYPE', 1, true) and 0 or value.err
  end
  if not value or string.sub(value, 1, 33) ~= owner .. '|' then
    return 0
  end
  local raised = raise(key, ttl)
  if type(raised) == 'table' then
    return raised.err
  end
  ours[#ours + 1] = key
  return 1
end

local answers = {}
for i, key in ipairs(KEYS) do
  answers[i] = renew(key, ARGV[2 * i - 1], ARGV[2 * i])
end
if track and #ours > 0 then
  -- Last of all: a write ends what was remembered before it, our own write too.
  redis.pcall('EXISTS', unpack(ours))
end
return answers
