-- Takes a lock away from one holder, as RedissonLock.forceUnlockAsync does from any.
--
-- KEYS[1]  the lock
-- KEYS[2]  its channel
-- KEYS[3]  what its holder says of itself
-- KEYS[4]  the clock
-- ARGV[1]  the holder's field
-- ARGV[2]  PUBLISH or SPUBLISH
-- ARGV[3]  the channel on which holders of this library hear of it
-- ARGV[4]  the message there; empty for a holder of Redisson, which cannot be told
--
-- Returns  {now, answer}: `1` if the holder had the lock, `2` if so and waiters could not be told, nothing if it did not have it.
--
-- Atomic, because the lock must not pass to another holder between the comparison and the release.

local lock, channel, about = unpack(KEYS)
local field, verb, told_at, message = unpack(ARGV)
local now = time()
if call('HEXISTS', lock, field) == 0 then
  return { now }
end
if message ~= '' then
  pcall('PUBLISH', told_at, message)
end
call('DEL', lock, about)
return { now, failed(pcall(verb, channel, '0')) and '2' or '1' }
