-- Takes the lock as a member of a quorum if it is free, or confirms it if it already belongs to the claim. Comes after
-- lock.lua and member.lua. Nobody queues.
--
-- KEYS     the lock; its fence; the birth
-- ARGV[1]  owner, 32 hexadecimal digits
-- ARGV[2]  ttl, ms
-- ARGV[3]  deadline, server time in us: later than this the caller may be gone
-- ARGV[4]  the rest of the value: `ttl|host|pid|site|lock name`
-- ARGV[5]  floor: the token must exceed it, and is the least above it if the fence and the time permit
--
-- Returns  {now, age, kept, answer}, now being server time in us, age for how long the data have been kept, in ms, kept
--          1 if the lock belonged to the claim already, and the answer as in acquire.lua: `g` token, `h` PTTL `|` value,
--          `s`, `c`, `t` name, or `e` text
--
-- Atomic, because the deadline must still hold, the token be drawn and the age be read at the moment K is taken: a
-- flush in between would go unseen.

local owner, ttl, deadline, tail, floor = unpack(ARGV)
LOCK = KEYS[1]

local function vote(value, mine, now)
  if failed(value) then
    return refusal(value, LOCK)
  end
  if value and not mine then
    return 'h' .. time_left() .. '|' .. value
  end
  local token, refused = next_token(floor, now)
  if not token then
    return refused
  end
  if mine then
    -- A repeat, or the second round.
    refused = raise_expiry(ttl)
  else
    refused = write_lock(owner, ttl, tail, now)
  end
  return refused or 'g' .. token
end

local now = time()
if now > tonumber(deadline) then
  return { now, 0, 0, 's' }
end
local age, unknown = age_of_data(now)
if unknown then
  return { now, 0, 0, unknown }
end
local value = read_lock()
local mine = not failed(value) and is_of(value, owner)
return { now, age, mine and 1 or 0, vote(value, mine, now) }
