-- Frees a lock, as RedissonLock.unlockInnerAsync does, keeps it taken for a while, or takes it away, as forceUnlockAsync does.
--
-- KEYS[1]  the lock
-- KEYS[2]  its channel
-- KEYS[3]  the latch of this unlock: what came of it, if it was done before
-- KEYS[4]  what its holder says of itself
-- KEYS[5]  the clock
-- ARGV[1]  the holder's field
-- ARGV[2]  PUBLISH or SPUBLISH
-- ARGV[3]  how long the latch lasts, ms
-- ARGV[4]  how long the lock stays taken, ms; 0 frees it at once
-- ARGV[5]  the field that keeps it
-- ARGV[6]  the channel on which holders of this library hear that their lock is taken away
-- ARGV[7]  the message there; empty if the holder itself asks, or is one of Redisson, which cannot be told
--
-- Returns  {now, answer}: `1` if the holder had the lock, `2` if so and waiters could not be told, nothing if it did not have it.
--
-- Atomic, because the lock must not pass to another holder between the comparison and the release.

local lock, channel, latch, about = unpack(KEYS)
local field, verb, latch_ms, keep, kept, told_at, message = unpack(ARGV)
local now = time()
local done = pcall('GET', latch)
if type(done) == 'string' then
  return { now, done }
end
local mine = pcall('HEXISTS', lock, field)
if mine == 0 or failed(mine) then
  return failed(mine) and not mistyped(mine) and mine or { now }
end
if message ~= '' then
  pcall('PUBLISH', told_at, message)
end
local answer = '1'
if tonumber(keep) > 0 then
  call('HINCRBY', lock, kept, 1)
  call('HDEL', lock, field)
  call('PEXPIRE', lock, keep)
  pcall('PEXPIRE', about, keep)
else
  call('DEL', lock, about)
  if failed(pcall(verb, channel, '0')) then
    answer = '2'
  end
end
pcall('SET', latch, answer, 'PX', latch_ms)
return { now, answer }
