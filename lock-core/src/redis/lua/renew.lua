-- Raises the leases of up to fifty locks, and makes the server tell of the next change to them.
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

local pcall, find = redis.pcall, string.find
local count, track = #KEYS, ARGV[1] == 'track'
local version = redis.REDIS_VERSION_NUM
-- PEXPIRE knows GT and NX from 7.0 on, and scripts the version.
local has_gt = version ~= nil

local answers = {}
local function refuse(i, answer)
  answers[#answers + 1] = i
  answers[#answers + 1] = answer
end

-- All values at once, a key of another type being none. Before 7.2 every read of a script has the
-- server remember all of its keys: with a read per lock that is the most expensive part by far.
local values = pcall('MGET', unpack(KEYS))
if values.err then
  -- Not permitted. Whoever wants to track learns of it, and does without.
  if track then
    return values
  end
  for i = 1, count do
    local value = pcall('GET', KEYS[i])
    if type(value) == 'table' then
      -- A key of another type is not ours any more, which is a definite answer.
      refuse(i, find(value.err, 'WRONGTYPE', 1, true) and 0 or value.err)
      value = nil
    end
    values[i] = value
  end
end

-- Raises an expiry where the server cannot compare.
local function raise(key, ttl)
  local left = pcall('PTTL', key)
  if type(left) == 'table' or left >= tonumber(ttl) then
    return left
  end
  return pcall('PEXPIRE', key, ttl)
end

for i = 1, count do
  local value = values[i]
  if value and find(value, ARGV[1 + i], 1, true) == 1 then
    -- A renewal that arrives late, with an older and shorter ttl, must not shorten the lease.
    local key, ttl = KEYS[i], ARGV[1 + count + i] or ARGV[2 + count]
    local raised = has_gt and pcall('PEXPIRE', key, ttl, 'GT') or raise(key, ttl)
    if raised == 0 then
      -- Without any expiry the lock would outlive its holder.
      raised = pcall('PEXPIRE', key, ttl, 'NX')
    end
    if raised ~= 1 and type(raised) == 'table' then
      refuse(i, raised.err)
    end
  elseif value == false then
    refuse(i, 0)
  end
end
if track then
  -- Last of all: a write ends what was remembered before it, our own write too.
  pcall('EXISTS', unpack(KEYS, 1, version and version < 0x070200 and 1 or count))
end
return answers
