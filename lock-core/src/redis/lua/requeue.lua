-- Ends one claim and makes another for the same key, behind all others, in one step.
--
-- KEYS     as in queue.lua
-- ARGV[2]  as in acquire.lua
-- ARGV     of this step:
--          1 to 6 the new claim, as in acquire.lua
--          7 owner of the claim that ends
--          8 the last token of its block that was used; 0 if nothing is to be given back
--
-- Returns  as acquire.lua. A stale request has released nothing either.
--
-- Atomic, because between the release and the new claim another could be passed over, and because
-- the new claim must stand in the queue before the lock moves on.

local function requeue(at, now)
  if now > tonumber(A[at + 3]) then
    return 's'
  end
  local value = read_lock()
  if failed(value) then
    return refusal(value, LOCK)
  end
  leave(A[at + 7])
  if is_of(value, A[at + 7]) then
    give_back(value, tonumber(A[at + 8]))
    call('DEL', LOCK)
    value = false
  end
  if not value and A[at + 5] ~= '' then
    local entered = pcall('EXISTS', QUEUE)
    if entered == 1 then
      enter(A[at + 1], A[at + 5], A[at + 6], ARGV[2], A[at + 4], now)
    end
  end
  return take(at, now, A[at + 6])
end

STEPS.r = requeue
