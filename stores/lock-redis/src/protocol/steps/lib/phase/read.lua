-- Reads a lock that several claims share. The four parts of phase/ are the body of one function, `phases`, which comes
-- after `grant.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because units and leases must agree, and because who is next must not change before it is granted.
--
-- A claim shares K as long as K is a phase and its own lease lies ahead. Without K the phase has ended: the next
-- grant removes the rest from the queue. A phase ends only when no claim shares it, even if K counts units.
--
-- Absolute times, because a script reads the time and Redis counts a PX from different moments: K must not end
-- before a lease.
--
-- In all of these parts, `value` is the value at K, or false. `used` is the units in use if K is a phase, else nothing. They
-- are passed on and returned, because each writer of K knows them. So no key is read twice.

-- Reads a mode: returns units and limit; nothing for a claim that wants K for itself.
local function terms(mode)
  local units, limit = string.match(mode, SHARING)
  return tonumber(units), tonumber(limit)
end

-- Returns whether a claim may have K now: alone if K is free, or beside others within its own limit.
local function fits(value, used, units, limit)
  used = value and used or not value and 0
  return not units and not value or units and used and used + units <= limit
end

-- Returns the units of a claim, or nothing if they cannot be read.
local function units_of(owner, now)
  local entry = read_entry(owner, now)
  return entry and entry.units
end

-- Returns whether a claim shares K. One whose lease is over was taken out before.
local function holds(owner, used)
  return used and tonumber(call('ZSCORE', QUEUE, owner) or 0) < 0
end

-- Returns when the last lease of the phase ends, server ms; or nothing, and why that is not known, or nobody shares K.
-- Takes out who cannot share it: no claim has such a name, or such a lease.
local function phase_end(now)
  local now_ms, ends = math.floor(now / 1000), nil
  -- The least score is the latest lease. Nonsense lies in front of all leases, so it is met here, some at a time.
  for _ = 1, 64 do
    local first = pcall('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
    if failed(first) then
      return nil, refusal(first, QUEUE)
    end
    local owner, score = unpack(first)
    ends = -(tonumber(score) or 0)
    if ends <= 0 then
      return
    end
    if is_owner(owner) and ends <= EXACT and (ends - now_ms <= DAY or units_of(owner, now)) then
      return ends
    end
    if leave(owner) then
      break
    end
  end
  return math.min(ends, now_ms + DAY)
end

-- Counts what those have whose leases run. Returns the units, at least one each, and whether all are known.
local function count_units(now)
  local owners = pcall('ZRANGE', QUEUE, '-inf', text(-math.floor(now / 1000) - 1), 'BYSCORE', 'LIMIT', 0, COUNTED)
  local sum, certain = 0, not failed(owners) and #owners < COUNTED
  for first = 1, failed(owners) and 0 or #owners, AT_ONCE do
    local some = { unpack(owners, first, math.min(first + AT_ONCE - 1, #owners)) }
    local entries = pcall('HMGET', WAITERS, unpack(some))
    for at, owner in ipairs(some) do
      local entry = unpack_entry(owner, entries[at], now)
      local units = entry and entry.units
      sum, certain = sum + (units or 1), certain and units
    end
  end
  return sum, certain
end

-- Returns how long queue and waiters must last, so that they outlive every lease, and one that ends then, ms.
local function must_last(now, ends)
  local last, unknown = phase_end(now)
  local left = math.max(last or 0, ends or 0) - math.floor(now / 1000)
  return (unknown and DAY or math.max(0, left)) + QUEUE_KEPT
end

-- A number that distinguishes this history of the server from others. Empty if the user may not read it.
local known_history
local function history()
  if not known_history then
    local replication = pcall('INFO', 'replication')
    local id = string.match(failed(replication) and '' or replication, 'master_replid:(%x%x%x%x%x%x)')
    known_history = id and text(tonumber(id, 16)) or ''
  end
  return known_history
end

-- Returns what a phase ends with whose token is drawn now, and that had this token before, if any.
local function drawn_now(first)
  local drawn_in = history()
  return (first or drawn_in ~= '') and '|' .. drawn_in .. (first and '|' .. first or '') or ''
end

-- Returns whether a holder with this token came into this phase, and not into one that a failover lost: its token is that of the
-- phase, or one between that of before and it.
local function is_within(token, value)
  local _, latest, _, first = phase_of(value)
  local function numbers_of(id)
    local ms, seq, number = string.match(id, '^(%d+)-(%d+)-(%d+)$')
    return ms and { tonumber(ms), tonumber(seq), tonumber(number) }
  end
  local function is_after(one, other)
    for at = 1, 3 do
      if one[at] ~= other[at] then
        return one[at] > other[at]
      end
    end
  end
  local mine, last = numbers_of(token or ''), numbers_of(latest)
  return not mine or not is_after(mine, last) and not is_after(numbers_of(first) or last, mine)
end

-- Returns whether a claim waits: the greatest score is then a place, not a lease. An unreadable entry may be a waiter.
local function wanted()
  local last = pcall('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')
  return failed(last) or (tonumber(last[2]) or 0) > 0
end

