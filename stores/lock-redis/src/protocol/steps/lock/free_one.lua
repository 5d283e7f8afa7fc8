-- Frees one lock whose queue cannot be reached, because its slot is being moved and the master of one has not
-- the other.
--
-- KEYS[1]  the lock K
-- ARGV[1]  how long it stays taken, ms; 0 frees it now
-- ARGV[2]  its owner, 32 hexadecimal digits and the '|' that follows them in the value
--
-- Returns  as release.lua: the answer to one claim, 1 if it held the lock, 0 if it did not.
--
-- Atomic, because the lease may pass to another claim between reading the owner and deleting the key. It does what `free` of
-- free.lua does with the lock alone, and does not pass it on: waiters ask again before long.

local value, keep = redis.call('GETRANGE', KEYS[1], 0, 511), tonumber(ARGV[1])
if string.find(value, ARGV[2], 1, true) ~= 1 then
  return { 0 }
end
if keep > 0 then
  redis.call('SET', KEYS[1], string.rep('0', 32) .. string.sub(value, 33), 'PX', keep)
else
  redis.call('DEL', KEYS[1])
end
return { 1 }
