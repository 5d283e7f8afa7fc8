-- Takes several locks if each is free, with nobody who can be reached waiting for it, and otherwise
-- none of them.
--
-- KEYS     those of the first lock as in queue.lua, then those of the second, and so on
-- ARGV[2]  deadline, server time in us: later than this the caller may be gone
-- ARGV[3]  of the first lock: owner, 32 hexadecimal digits
-- ARGV[4]  ttl, ms
-- ARGV[5]  floor: the token must exceed it
-- ARGV[6]  block: how many consecutive tokens to reserve
-- ARGV[7]  the rest of the value: `ttl|host|pid|site`
--          then the same five of the second lock, and so on
--
-- Returns  {'granted', now, first token, block, first token, block, ...}
--          {'held', now, number, value, PTTL}  this lock is the first that somebody else has
--          {'stale', now}                      the deadline has passed, nothing was done
--          {'type', name}                      this key is not a string, nothing was taken
--          now is server time in us.
--
-- Atomic, because a lock that is free when it is looked at must be free when the last of them has
-- been looked at, and because nobody may see some of them taken and others not.

local now = clock()
if now > tonumber(ARGV[2]) then
  return { 'stale', text(now) }
end

-- Turns the functions of queue.lua to one of the locks. Returns its arguments.
local function turn_to(number)
  LOCK, FENCE, QUEUE, WAITERS = unpack(KEYS, 4 * number - 3, 4 * number)
  return unpack(ARGV, 5 * number - 2, 5 * number + 2)
end

local ours, waited_for = {}, {}
for number = 1, #KEYS / 4 do
  local owner = turn_to(number)
  local value = pcall('GET', LOCK)
  if failed(value) then
    return mistyped(value) and { 'type', LOCK } or value
  end
  if not value then
    waited_for[number] = call('EXISTS', QUEUE) == 1
    if waited_for[number] and move_on(owner, now) == 'granted' then
      value = call('GET', LOCK)
    end
  end
  if value and not is_of(value, owner) then
    return { 'held', text(now), number, value, call('PTTL', LOCK) }
  end
  ours[number] = value
end

local answer, taken = { 'granted', text(now) }, {}
for number = 1, #KEYS / 4 do
  local owner, ttl, floor, block, tail = turn_to(number)
  local token, refused
  if ours[number] then
    -- A repeat: its answer may have been lost. Only ever raise the expiry.
    if call('PTTL', LOCK) < tonumber(ttl) then
      call('PEXPIRE', LOCK, ttl)
    end
    token, block = string.match(ours[number], '^%x+|(%d+)|') or '0', '1'
  else
    if waited_for[number] then
      leave(owner)
    end
    token, refused = grant(owner, ttl, tonumber(block), tonumber(floor), tail, now)
    if not token then
      -- Those before it were free, and are again.
      for _, lock in ipairs(taken) do
        call('DEL', lock)
      end
      return refused
    end
    taken[#taken + 1] = LOCK
  end
  answer[#answer + 1] = token
  answer[#answer + 1] = block
end
return answer
