-- Takes locks that are free, and frees locks, in any slots of this master: all that leaves together for it. Comes after
-- the function `library`, which defines everything of release.lua that is needed only where somebody waits.
--
-- KEYS     none, because a node of a cluster takes only keys of one slot; or the keys of the only call
-- ARGV[6i+1…6i+6]  of each call one of
--          `take`  the lock, its clock; value, ttl in ms, deadline in us of server time: later than this the caller
--                  may be gone
--          `free`  the lock, its queue, its waiters, its clock; the owner and the '|' that follows it in the value
--
-- Returns  server time in us, and of each call
--          of `take`  `g` token, `h` if somebody has the lock, `s` if the deadline has passed, or `d` if the clock gives no
--                     token; the lock is taken only in the first case
--          of `free`  1 if the claim held its lock, 0 if it did not
--          of both    `e` text if a command failed, and nothing was done
--
-- Atomic per lock: the token must be drawn at the instant its lock is taken, and the lease may pass to another claim
-- between reading the owner and deleting the key. One script for all of them, because that costs a node of a cluster a
-- third of one for each.

local pcall, find, args = redis.pcall, string.find, ARGV
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- As in clock.lua.
local kept = now % 1000 == 0 and '0' or '1'

-- In a slot that is being moved, a lock that is not here cannot be written. So if it can be, all of its keys are here.
local function take(lock, clock, value, ttl, deadline)
  if now > tonumber(deadline) then
    return 's'
  end
  local set = pcall('SET', lock, value, 'NX', 'PX', ttl)
  if not set then
    return 'h'
  elseif set.err then
    return 'e' .. set.err
  end
  local id = pcall('XADD', clock, 'MAXLEN', '~', kept, '*', 'k', 'v')
  if type(id) == 'table' then
    -- Of another type, say, or memory is full. acquire.lua corrects what can be corrected, or says what it is.
    pcall('DEL', lock)
    return 'd'
  end
  return 'g' .. id
end

local function free(lock, queue, waiters, clock, head)
  local waiting = pcall('EXISTS', queue)
  if waiting == 0 then
    local value = pcall('GET', lock)
    if not value then
      return 0
    elseif type(value) == 'string' then
      if find(value, head, 1, true) ~= 1 then
        return 0
      end
      local deleted = pcall('DEL', lock)
      return type(deleted) == 'table' and 'e' .. deleted.err or 1
    end
    return find(value.err, 'WRONGTYPE', 1, true) and 0 or 'e' .. value.err
  elseif waiting == 1 then
    -- All of it, or nothing: a part of the keys may be at another master already.
    waiting = pcall('EXISTS', lock, queue, waiters, clock)
  end
  if type(waiting) == 'table' then
    return 'e' .. waiting.err
  end
  local turn_to, pass_on = library({ clock })
  turn_to(lock, queue)
  local done, answer = pass_on(head, 0)
  -- Before 7.0 what is raised is text.
  return done and answer or 'e' .. (type(answer) == 'table' and answer.err or answer)
end

local answers, at = { now }, 1
while args[at] do
  if args[at] == 'take' then
    answers[#answers + 1] = take(unpack(args, at + 1, at + 5))
  else
    answers[#answers + 1] = free(unpack(args, at + 1, at + 5))
  end
  at = at + 6
end
return answers
