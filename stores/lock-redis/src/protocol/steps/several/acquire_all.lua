-- Takes several locks if each is free and no reachable waiter is queued for any of them; otherwise
-- takes none.
--
-- KEYS     those of the first lock as in layout.lua, then those of the second, and so on; last the clock
-- ARGV[1]  deadline, server time in us: later than this the caller may be gone
-- ARGV[2]  floor: the token must exceed it
-- ARGV[3]  of the first lock: owner, 32 hexadecimal digits
-- ARGV[4]  ttl, ms
-- ARGV[5]  the rest of the value: `ttl|host|pid|site|lock name`
--          then the same three of the second lock, and so on
--
-- Returns  {now, 0, token}        all are the claims', with one token: tokens are ordered by key
--          {now, number, why}     the lock of this number is not, so none is; why is as in acquire.lua:
--                                 `h` PTTL `|` value, `s`, `c`, `t` name, or `e` text
--          now is server time in us.
--
-- Atomic, because a lock that was found free must still be free when the last of them has been
-- checked, and because nobody may see some of them taken and others not.

local now = time()
local deadline, floor = ARGV[1], ARGV[2]
if now > tonumber(deadline) then
  return { now, 1, 's' }
end

-- Turns to one of the locks. Returns its arguments.
local function turn_to_lock(number)
  LOCK, QUEUE, WAITERS = unpack(KEYS, 3 * number - 2, 3 * number)
  return unpack(ARGV, 3 * number, 3 * number + 2)
end

local count = (#KEYS - 1) / 3
-- First each lock is looked at, and nothing is taken. `ours` holds the values of those that are the claims' already;
-- `waited_for` the numbers of those that have a queue, in which a claim of ours may stand.
local ours, waited_for = {}, {}
for number = 1, count do
  local owner = turn_to_lock(number)
  local value = read_lock()
  if failed(value) then
    return { now, number, refusal(value, LOCK) }
  end
  if not value then
    local free_for = left_free(false, now)
    if free_for > 0 then
      return { now, number, 'h' .. text(math.ceil(free_for / 1000)) .. '|' }
    end
    waited_for[number] = call('EXISTS', QUEUE) == 1 or nil
    if waited_for[number] and move_on(owner, now) == 'granted' then
      value = read_lock()
    end
  end
  if value and not is_of(value, owner) then
    if string.byte(value, 33) ~= BAR then
      meet(now)
    end
    return { now, number, 'h' .. time_left() .. '|' .. value }
  end
  ours[number] = value
end

-- Drawn when nothing stands in the way any more, and before anything is taken: if memory is full, this is
-- what is refused.
local token, refused = draw(floor, now)
if not token then
  return { now, 1, refused }
end
local taken = {}
for number = 1, count do
  local owner, ttl, tail = turn_to_lock(number)
  -- Or a repeat: its answer may have been lost.
  local why
  if ours[number] then
    why = raise_expiry(ttl)
  else
    why = write_lock(owner, ttl, tail, now)
    if not why then
      taken[#taken + 1] = LOCK
    end
  end
  if why then
    -- The locks before it were free, and are free again.
    for _, lock in ipairs(taken) do
      if failed(pcall('DEL', lock)) then
        why = HALFWAY
      end
    end
    return { now, number, why }
  end
end
for number in pairs(waited_for) do
  leave((turn_to_lock(number)))
end
return { now, 0, token }
