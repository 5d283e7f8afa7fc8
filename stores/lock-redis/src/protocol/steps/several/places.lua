-- Confirms the places of several claims that sleep, each in the queue of another lock: one call instead of one for each, where
-- nothing else is to be done.
--
-- KEYS     of each claim the lock, its queue and its waiters as in layout.lua
-- ARGV[1]  deadline, server time in us, of the claim that has the least time
-- then of each claim, as in acquire.lua:
--          owner
--          the rest of the value
--          ticket
--          floor
--
-- Returns  {now, answers}, now being server time in us, and of each claim the answer one of
--          `q` and `z`  as acquire.lua answers
--          `s`          the deadline has passed, nothing was done
--          `a`          more than a confirmation is needed, or a command failed: ask acquire.lua
--
-- Atomic, because a place is confirmed behind somebody else, who must not go meanwhile. Each claim is by itself: what is refused
-- to one of them decides for none of the others.

-- Confirms one place, only if another claim has K exclusively. If K is free, shared or foreign, more than a confirmation is needed.
local function confirm(owner, tail, ticket, floor, now)
  local value = read_lock()
  if failed(value) or not value or string.byte(value, 33) ~= BAR or phase_of(value) or is_of(value, owner) then
    return 'a'
  end
  local refused, sleep = enter(owner, ticket, floor, tail, now, QUEUE_KEPT, value)
  if refused then
    return 'a'
  end
  return (sleep and 'z' .. sleep .. '|' or 'q') .. time_left() .. '|' .. value
end

local now = time()
local answers, in_time = { now }, now <= tonumber(ARGV[1])
for at = 1, #KEYS / 3 do
  LOCK, QUEUE, WAITERS = KEYS[3 * at - 2], KEYS[3 * at - 1], KEYS[3 * at]
  answers[at + 1] = in_time and confirm(ARGV[4 * at - 2], ARGV[4 * at - 1], ARGV[4 * at], ARGV[4 * at + 1], now) or 's'
end
return answers
