-- Reads the record of a job, or notes there the run that ends, if its claim still has the lock.
--
-- KEYS[1]  the record
-- KEYS[2]  the lock K; absent reads
-- ARGV[1]  the owner of the claim, 32 hexadecimal digits and the '|' that follows them in the value
-- ARGV[2]  the period, ms
-- ARGV[3]  1 if the run ended without an error, else 0
-- ARGV[4]  how long to remember it, ms
--
-- Returns  the record and the server's time in ms, {} if there is none, when it reads; else whether it was noted.
--
-- The record is `period|from|succeeded|since|ttl|host|pid|site|lock name`: from `since` on as in the value of the lock
-- that the run had; `from` is the `since` of the last run that succeeded, or of the first, if none did.
--
-- Atomic, because the lease may pass to another between reading who ran the job and writing it down.

if not KEYS[2] then
  local record, time = redis.call('GET', KEYS[1]), redis.call('TIME')
  return record and { record, time[1] * 1000 + math.floor(time[2] / 1000) } or {}
end
local value = redis.call('GETRANGE', KEYS[2], 0, 511)
if string.sub(value, 1, 33) ~= ARGV[1] then
  return 0
end
local run = string.sub(value, 34)
local before = ARGV[3] == '0' and redis.call('GET', KEYS[1])
local from = before and string.match(before, '^%d+|(%d+)|') or string.match(run, '^%d+')
redis.call('SET', KEYS[1], ARGV[2] .. '|' .. (from or 0) .. '|' .. ARGV[3] .. '|' .. run, 'PX', ARGV[4])
return 1
