-- Takes the lock if it is free and nobody who can be reached waits for it, confirms it if it
-- already belongs to the claim, or queues the claim.
--
-- KEYS     as in queue.lua
-- ARGV     of this step:
--          1 owner, 32 hexadecimal digits
--          2 ttl, ms
--          3 deadline, server time in us: later than this the caller may be gone
--          4 floor: the token must exceed it
--          5 block: how many consecutive tokens to reserve
--          6 the rest of the value: `ttl|host|pid|site`
--          7 ticket: `stamp|grant_ttl|inbox`, the stamp of this request, echoed by a grant, for how
--            long the queue grants the lock, ms, and whom to tell; empty not to queue
--
-- Returns  the first token, a number    K is the claim's for its whole ttl
--          `m` first token              it was already, and is again
--          `h` PTTL `|` value           K is somebody else's
--          `q` PTTL `|` value           the same, and the claim stands in the queue
--          `s`                          the deadline has passed, nothing was done
--          `t` name                     this key is of another type, nothing was done
--          `e` text                     the error of a command; the claim has not taken K
--
-- Atomic, because the token must be stored before anybody else can be granted one, and because
-- the deadline must still hold at the moment K is taken.

local A = ARGV

local function take(at, now)
  if now > tonumber(A[at + 3]) then
    return 's'
  end
  return acquire(A[at + 1], A[at + 2], A[at + 4], A[at + 5], A[at + 6], A[at + 7], now)
end

STEPS.a = take
