-- Ends one claim and makes another for the same key, behind all others, in one call.
--
-- KEYS     as in queue.lua
-- ARGV[2]..ARGV[10]  the new claim, as in acquire.lua
-- ARGV[11] owner of the claim that ends
-- ARGV[12] the last token of its block that was used, 0 if that is not known
--
-- Returns  as acquire.lua. A stale request has released nothing either.
--
-- Atomic, because between the release and the new claim another could be passed over, and because
-- the new claim must stand in the queue before the lock moves on.

local now = clock()
if now > tonumber(ARGV[4]) then
  return { 'stale', text(now) }
end

local value = pcall('GET', LOCK)
if failed(value) then
  return mistyped(value) and { 'type', LOCK } or value
end
leave(ARGV[11])
if is_of(value, ARGV[11]) then
  give_back(value, tonumber(ARGV[12]))
  call('DEL', LOCK)
  value = false
end
if not value and ARGV[8] ~= '' then
  local entered = pcall('EXISTS', QUEUE)
  if entered == 1 then
    enter(ARGV[2], ARGV[8], ARGV[9], ARGV[10], ARGV[6], ARGV[5], ARGV[7], now)
  end
end
return acquire(ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[7], { ARGV[8], ARGV[9], ARGV[10] }, now)
