-- Takes a lock that is free, as RedissonLock.tryLockInnerAsync does, and draws a token. A claim that has the lock is not counted
-- twice: it is looked up first.
--
-- KEYS[1]  the lock: a hash with one field for its holder, and the count of its holds
-- KEYS[2]  what a holder of this library says of itself: `owner|since|ttl|host|pid|site|lock name`, since being server ms
-- KEYS[3]  the clock
-- ARGV[1]  deadline, server time in us: later than this the caller may be gone
-- ARGV[2]  the claim's field
-- ARGV[3]  ttl, ms
-- ARGV[4]  floor: the token must exceed it
-- ARGV[5]  owner
-- ARGV[6]  the rest of what the holder says of itself
--
-- Returns  {now, answer, …}, now being server time in us, and the answer one of
--          `g` token                  the lock is the claim's for its whole ttl
--          `h` PTTL, about, fields…   others have the lock
--          `s`                        the deadline has passed, nothing was done
--          `c`                        the floor lies too far ahead of the server's time
--
-- Atomic, because the deadline must hold and the token be drawn at the moment the lock is taken.

local lock, about, field, ttl = KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[3])
local now = time()
if now > tonumber(ARGV[1]) then
  return { now, 's' }
end
local mine = call('HEXISTS', lock, field) == 1
if not mine and call('EXISTS', lock) == 1 then
  return seen(now, lock, about)
end
local token, why = draw(ARGV[4], now)
if not token then
  if why == 'c' then
    return { now, why }
  end
  return redis.error_reply((string.byte(why) == 116 and 'WRONGTYPE ' or '') .. string.sub(why, 2))
end
if not mine then
  call('HINCRBY', lock, field, 1)
end
local raised = raise(lock, ttl, not mine)
if failed(raised) then
  if not mine then
    call('DEL', lock)
  end
  return raised
end
pcall('SET', about, ARGV[5] .. '|' .. text(math.floor(now / 1000)) .. '|' .. ARGV[6], 'PX', ttl)
return { now, 'g', token }
