-- Extends the lease of a claim that has its lock.
--
-- KEYS     as in acquire.lua
-- ARGV[1]  deadline, server time in us
-- ARGV[2]  the claim's field
-- ARGV[3]  ttl, ms
--
-- Returns  {now, answer}: `r` if the lease runs for its whole ttl, nothing if the claim does not have the lock, `s` if the deadline
--          has passed.
--
-- Atomic, because another claim may have the lock by the time its lease is extended.

local lock, about, ttl = KEYS[1], KEYS[2], tonumber(ARGV[3])
local now = time()
if now > tonumber(ARGV[1]) then
  return { now, 's' }
end
local mine = pcall('HEXISTS', lock, ARGV[2])
if mine == 0 or failed(mine) and mistyped(mine) then
  return { now }
end
local raised = failed(mine) and mine or raise(lock, ttl, false)
if failed(raised) then
  return raised
end
pcall('PEXPIRE', about, ttl)
return { now, 'r' }
