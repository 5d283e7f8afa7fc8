-- What claims do that share a lock. Comes after `phase.lua`, and `join.lua` after it.
--
-- KEYS     the lock, its queue and its waiters as in queue.lua, and the clock
-- ARGV[1]  the step, and what follows it:
--          `take`       owner, ttl, deadline, tail, ticket and floor as in acquire.lua, mode: `s units/limit`, or `x`
--                       for the claim of a lock for itself; owner of a claim that ends, not there if none does
--          `renew`      owner, ttl
--          `downgrade`  owner, ttl, mode, token: `ms-seq-number`
--          `list`       nothing
--
-- Returns  of `take`       what acquire.lua does, and of a claim that shares:
--                          `j` token  the claim shares K for its whole ttl
--                          `w` token  the same, and somebody waits
--          of `renew` and `downgrade`  1 if the lease runs for its whole ttl, 2 if somebody waits besides, 0 if it is
--                          over, `e` text if a command failed, `t` name if this key is of another type
--          of `list`       server time in us, then owner, score and entry of each holder
--
-- Atomic, because units and leases must agree, and for the reasons of acquire.lua.

LOCK, QUEUE, WAITERS = KEYS[1], KEYS[2], KEYS[3]
local step, owner, ttl = unpack(ARGV)
local now = time()
if step == 'take' then
  local deadline, tail, ticket, floor, mode, ended = unpack(ARGV, 4)
  local claim = { owner, ttl, tail, ticket, floor, mode }
  return { now, now > tonumber(deadline) and 's' or phases().take(claim, ended, now) }
elseif step == 'renew' then
  return phases().renew(owner, ttl, now)
elseif step == 'downgrade' then
  local value = read_lock()
  if not failed(value) and is_of(value, owner) then
    return phases().downgrade(owner, ttl, ARGV[4], ARGV[5], now)
  end
  -- A repeat, or over.
  return phases().renew(owner, ttl, now)
end
local list, value = { now }, read_lock()
if not failed(value) and phase_of(value) then
  local holders = call('ZRANGE', QUEUE, '-inf', '(0', 'BYSCORE', 'WITHSCORES')
  for at = 1, #holders, 2 do
    list[#list + 1] = holders[at]
    list[#list + 1] = holders[at + 1]
    list[#list + 1] = call('HGET', WAITERS, holders[at]) or ''
  end
end
return list
