-- Ends one claim and makes another for the same key, behind all others, in one step.
--
-- KEYS     as in queue.lua
-- ARGV     of this step:
--          1 to 7 the new claim, as in acquire.lua
--          8 owner of the claim that ends
--          9 the last token of its block that was used; 0 if nothing is to be given back
--
-- Returns  as acquire.lua. A stale request has released nothing either.
--
-- Atomic, because between the release and the new claim another could be passed over, and because
-- the new claim must stand in the queue before the lock moves on.

local function requeue(at, now)
  if now > tonumber(A[at + 3]) then
    return 's'
  end
  local value = pcall('GET', LOCK)
  if failed(value) then
    return refusal(value, LOCK)
  end
  leave(A[at + 8])
  if is_of(value, A[at + 8]) then
    give_back(value, tonumber(A[at + 9]))
    call('DEL', LOCK)
    value = false
  end
  if not value and A[at + 7] ~= '' then
    local entered = pcall('EXISTS', QUEUE)
    if entered == 1 then
      enter(A[at + 1], A[at + 7], A[at + 5], A[at + 4], A[at + 6], now)
    end
  end
  return take(at, now)
end

STEPS.r = requeue
