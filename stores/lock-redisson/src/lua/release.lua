-- Frees a lock, as RedissonLock.unlockInnerAsync does, or keeps it taken for a while.
--
-- KEYS[1]  the lock
-- KEYS[2]  its channel
-- KEYS[3]  the latch of this unlock: what came of it, if it was done before
-- KEYS[4]  what its holder says of itself
-- KEYS[5]  the clock
-- ARGV[1]  the claim's field
-- ARGV[2]  PUBLISH or SPUBLISH
-- ARGV[3]  how long the latch lasts, ms
-- ARGV[4]  how long the lock stays taken, ms; 0 frees it at once
-- ARGV[5]  the field that keeps it
--
-- Returns  {now, answer}: `1` if the claim had the lock, `2` if so and its waiters could not be told, nothing if it did not have it.
--
-- Atomic, because the lock must not pass to another claim between the comparison and the release.

local lock, channel, latch, about = unpack(KEYS)
local field, verb, latch_ms, keep, kept = unpack(ARGV)
local now = time()
local done = pcall('GET', latch)
if type(done) == 'string' then
  return { now, done }
end
local mine = pcall('HEXISTS', lock, field)
if mine == 0 or failed(mine) then
  return failed(mine) and not mistyped(mine) and mine or { now }
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
