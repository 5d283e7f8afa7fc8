-- Frees locks, and takes locks that are free, in any slots of this master: all that leaves together for it. Comes after
-- `pass.lua` and the function `library`, which defines everything else of release.lua that is needed only where
-- somebody waits.
--
-- KEYS      none, because a node of a cluster takes only keys of one slot; or the keys of the only call
-- ARGV[1]   how many locks to free
-- ARGV[2]   how long those that are taken stay so, ms
-- ARGV[3]   deadline in us of server time: later than this a caller may be gone, and none is taken
-- then      of each lock to free: the lock, its queue, its clock; the owner and the '|' that follows it in the value
-- then      of each lock to take: the lock, its clock, its value
--
-- Returns   server time in us, and of each lock in this order
--           to free  1 if the claim held it, 0 if it did not
--           to take  a token, `h` if it is taken, `s` if the deadline has passed, or `d` if the clock does not give a token; it
--                    is taken only in the first case
--           or `e` text if a command failed, and nothing was done
--
-- Atomic per lock: the token must be drawn at the instant its lock is taken, and the lease may pass to another claim
-- between reading the owner and deleting the key. One script for all of them, because that costs a node of a cluster a
-- third of one for each. Each command costs as much again as it does outside of a script, and each argument a third of
-- that: so there are no more of either than it takes.

local pcall, find, args = redis.pcall, string.find, ARGV
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Frees a lock that has a queue, or may have. The library is made for each of these locks, because each slot has a clock.
local function free_and_pass_on(waiting, lock, queue, clock, head)
  if waiting == 1 then
    -- All of it, or nothing: a part of the keys may be at another master already.
    local waiters = string.gsub(queue, 'queue$', 'waiters')
    waiting = pcall('EXISTS', lock, queue, waiters, clock)
  end
  if type(waiting) == 'table' then
    return waiting
  end
  local passed, value = pass_on(lock, queue, clock, head)
  local left = passed and 1 or value and leave_phase(lock, queue, head, value)
  if left then
    return left
  end
  local turn_to, free = library({ clock })
  turn_to(lock, queue)
  return free(head, 0)
end

local answers, place, first = { now }, 1, 4 + 4 * tonumber(args[1])
-- A lock without a queue is compared and deleted, which is what `free` of free.lua would do with it.
for at = 4, first - 1, 4 do
  local lock, waiting, answer = args[at], pcall('EXISTS', args[at + 1]), 0
  if waiting == 0 then
    local value = pcall('GET', lock)
    if type(value) == 'string' then
      if find(value, args[at + 3], 1, true) == 1 then
        answer = pcall('DEL', lock)
      end
    elseif value and not find(value.err, 'WRONGTYPE', 1, true) then
      answer = value
    end
  else
    answer = free_and_pass_on(waiting, lock, args[at + 1], args[at + 2], args[at + 3])
  end
  place = place + 1
  answers[place] = type(answer) == 'table' and 'e' .. answer.err or answer
end

local ttl, late = args[2], now > tonumber(args[3])
-- As in clock.lua, but only now and then: to look for what can go costs a third of a draw.
local kept = now % EMPTIED_EVERY == 0 and '0' or now % TRIMMED_EVERY == 0 and '1'
for at = first, #args, 3 do
  -- In a slot that is being moved, a lock that is not here cannot be written. So if it can be, all of its keys are here.
  local lock, answer = args[at], 's'
  local set = not late and pcall('SET', lock, args[at + 2], 'NX', 'PX', ttl)
  if set and set.err then
    answer = 'e' .. set.err
  elseif set then
    if kept then
      answer = pcall('XADD', args[at + 1], 'MAXLEN', '~', kept, '*', 'k', 'v')
    else
      answer = pcall('XADD', args[at + 1], '*', 'k', 'v')
    end
    if type(answer) == 'table' then
      -- For example, the key is of another type, or memory is full. acquire.lua corrects it if possible, or reports it.
      pcall('DEL', lock)
      answer = 'd'
    end
  elseif not late then
    answer = 'h'
  end
  place = place + 1
  answers[place] = answer
end
return answers
