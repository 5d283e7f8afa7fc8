-- The steps of claims that share a lock. Comes after phase/, and `join.lua` after it.
--
-- KEYS     the lock, its queue and its waiters as in layout.lua, and the clock
-- ARGV[1]  the step, and what follows it:
--          `take`       owner, ttl, deadline, tail, ticket and floor as in acquire.lua, mode: `s units/limit`, or `x`
--                       for the claim of a lock for itself; the number of the server's history as in layout.lua, empty
--                       if it is not known; owner of a claim that ends, not there if none does
--          `renew`      owner, ttl, token: `ms-seq-number`, that under which it holds the lock; empty if it is not known
--          `downgrade`  owner, ttl, mode, token
--          `list`       how many holders to leave out
--
-- Returns  of `take`       what acquire.lua does, and of a claim that shares:
--                          `j` token  the claim shares K for its whole ttl
--                          `w` token  the same, and a claim waits
--          of `renew` and `downgrade`  1 if the lease runs for its whole ttl, 2 if a claim waits too, 0 if it has
--                          ended, `e` text if a command failed, `t` name if this key is of another type
--          of `list`       server time in us, then owner, score and entry of the next holders, at most 512
--
-- Atomic, because units and leases must agree, and for the reasons of acquire.lua.

local step, owner, ttl = unpack(ARGV)
local now = time()
if step == 'take' then
  local deadline, tail, ticket, floor, mode, history, ended = unpack(ARGV, 4)
  local claim = { owner, ttl, tail, ticket, floor, mode }
  return { now, now > tonumber(deadline) and 's' or phases().acquire(claim, ended, now, history) }
elseif step == 'renew' then
  return phases().renew(owner, ttl, ARGV[4], now)
elseif step == 'downgrade' then
  local value = read_lock()
  if not failed(value) and is_of(value, owner) then
    return phases().downgrade(owner, ttl, ARGV[4], ARGV[5], now)
  end
  -- A repeat, or over.
  return phases().renew(owner, ttl, '', now)
end
-- The last one is `list`. It removes no entry, so leases that have ended are listed too: the reader leaves them out.
local list, value = { now }, read_lock()
if not failed(value) and phase_of(value) then
  local holders = call('ZRANGE', QUEUE, '-inf', '(0', 'BYSCORE', 'LIMIT', ARGV[2], 512, 'WITHSCORES')
  for first = 1, #holders, 256 do
    local owners = {}
    for at = first, math.min(first + 254, #holders), 2 do
      owners[#owners + 1] = holders[at]
    end
    for place, entry in ipairs(call('HMGET', WAITERS, unpack(owners))) do
      list[#list + 1] = owners[place]
      list[#list + 1] = holders[first + 2 * place - 1]
      list[#list + 1] = entry or ''
    end
  end
end
return list
