-- Reads a lock in Redisson's layout, and raises its expiry. Comes after `clock.lua`.
--
-- KEYS     as in acquire.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because the holder must not change between reading and writing.

-- More fields than a lock has: any program may keep a hash.
local MOST_FIELDS = 64

-- Describes who has a lock.
local function seen(now, lock, about)
  local told, fields = pcall('GET', about), {}
  if call('HLEN', lock) <= MOST_FIELDS then
    fields = call('HKEYS', lock)
  end
  return { now, 'h', math.min(call('PTTL', lock), EXACT), type(told) == 'string' and told or '', unpack(fields) }
end

-- Sets the expiry of a lock that was just taken, and only ever raises that of another. A lock without an expiry lasts longest.
local function raise(lock, ttl, taken)
  local left = call('PTTL', lock)
  if taken or left >= 0 and left < ttl then
    return pcall('PEXPIRE', lock, ttl)
  end
  return 1
end
