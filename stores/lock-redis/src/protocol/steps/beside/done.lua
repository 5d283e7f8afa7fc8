-- Reads the mark that the work under a lock is done for a version, removes it, or writes it if the claim still has the lock.
--
-- KEYS[1]  the mark
-- KEYS[2]  the lock K; absent reads or removes
-- ARGV[1]  the owner of the claim, 32 hexadecimal digits and the '|' that follows them in the value; without K: anything
--          removes, absent reads
-- ARGV[2]  how long to keep it, ms
--
-- Returns  the mark and the server's time in ms, {} if the mark is missing, when it reads; else whether it was removed or written;
--          or the text at that key that is not a mark, and is left as it is.
--
-- The mark is `at|since|ttl|host|pid|site|lock name`: from `since` on as in the value of the lock under which it was done.
--
-- Atomic, because the lease may pass to another between looking who has the lock and writing that its work is done.

-- No mark is longer, and what somebody else has put there may be as long as they like.
local mark = redis.call('GETRANGE', KEYS[1], 0, 1023)
if mark == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  mark = false
end
if mark and not string.find(mark, '^%d+|%d+|%d+|[^|]*|%d+|') then
  return mark
end
if not KEYS[2] and ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not KEYS[2] then
  return mark and { mark, now } or {}
end
local value = redis.call('GETRANGE', KEYS[2], 0, 511)
if string.sub(value, 1, 33) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], string.format('%.0f|', now) .. string.sub(value, 34), 'PX', ARGV[2])
return 1
