-- Takes the lock if it is free and nobody who can be reached waits for it, confirms it if it
-- already belongs to the claim, or queues the claim.
--
-- KEYS     as in queue.lua
-- ARGV[2]  owner, 32 hexadecimal digits
-- ARGV[3]  ttl, ms
-- ARGV[4]  deadline, server time in us: later than this the caller may be gone
-- ARGV[5]  floor: the token must exceed it
-- ARGV[6]  block: how many consecutive tokens to reserve
-- ARGV[7]  the rest of the value: `ttl|host|pid|site`
-- ARGV[8]  inbox: whom to tell of a grant; empty not to queue
-- ARGV[9]  stamp of this request, echoed by a grant
-- ARGV[10] for how long the queue grants the lock, ms
--
-- Returns  {'granted', first token, now}    K is the claim's for its whole ttl
--          {'mine', first token, now}       it was already, and is again
--          {'held', value, PTTL, now}       K is somebody else's
--          {'queued', value, PTTL, now}     the same, and the claim stands in the queue
--          {'stale', now}                   the deadline has passed, nothing was done
--          {'type', name}                   this key is not a string, nothing was done
--          now is server time in us.
--
-- Atomic, because the token must be stored before anybody else can be granted one, and because
-- the deadline must still hold at the moment K is taken.

local now = clock()
if now > tonumber(ARGV[4]) then
  return { 'stale', text(now) }
end
return acquire(ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[7], { ARGV[8], ARGV[9], ARGV[10] }, now)
