-- Writes a phase: who shares a lock, how many units are in use, and until when. Comes after `read.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because units and leases must agree.
--
-- If a command is refused half-way, K may count more units than its holders have, but never fewer. A unit without a holder only
-- costs room until the phase ends. A holder whose unit is not counted would let in a second holder.

-- Removes the holders with a score from `least` up to 0: the ones whose lease has ended, or all. Returns how many
-- there were, their known units, and the refusal, if there was one. Returns `s` if there are more than one script
-- may remove: the next call removes the next ones.
local function take_out(least, now)
  local ended, units = 0, 0
  for _ = 1, MOST / AT_ONCE do
    local gone = pcall('ZRANGE', QUEUE, least, '(0', 'BYSCORE', 'LIMIT', 0, AT_ONCE)
    if failed(gone) then
      return ended, units, refusal(gone, QUEUE)
    elseif #gone == 0 then
      return ended, units
    end
    local entries = pcall('HMGET', WAITERS, unpack(gone))
    local left = pcall('ZREM', QUEUE, unpack(gone))
    if failed(left) then
      return ended, units, refusal(left, QUEUE)
    end
    pcall('HDEL', WAITERS, unpack(gone))
    for at, owner in ipairs(gone) do
      local entry = unpack_entry(owner, entries[at], now)
      ended, units = ended + 1, units + (entry and entry.units or 0)
    end
    if #gone < AT_ONCE then
      return ended, units
    end
  end
  return ended, units, 's'
end

-- Writes K, which ends with the last lease. Returns its value and the units in use; false if the phase is over; or both
-- as they were, and what was refused.
local function write_phase(units, value, used, now)
  local ends, unknown = phase_end(now)
  if unknown then
    return value, used, unknown
  end
  local new = string.format(PHASE_HEAD, units) .. string.sub(value, 33)
  local set = ends and pcall('SET', LOCK, new, 'PXAT', text(ends)) or pcall('DEL', LOCK)
  if failed(set) then
    return value, used, refusal(set, LOCK)
  elseif ends then
    return new, units
  end
  return false
end

-- Takes units out of the phase. If that may not be all, or K would be free, counts those that stay. Returns K's value
-- and the units in use, or false if nobody shares it any more.
local function give_back(units, certain, value, used, now)
  used = used - (units or 0)
  if not units or not certain or used <= 0 then
    local sum, all = count_units(now)
    used = all and sum or math.max(used, sum)
  end
  value, used = write_phase(used, value, used, now)
  return value, used
end

-- Takes a holder out of the phase. Returns K's value, the units in use, and what was refused, if anything.
local function take_out_one(owner, value, used, now)
  local units, refused = units_of(owner, now), leave(owner)
  if refused then
    return value, used, refused
  end
  return give_back(units, true, value, used, now)
end

-- Raises the lease of a holder, and K and what else must outlive it. Returns why it could not, if so.
local function raise(owner, ttl, now, value, used)
  local ends = math.floor(now / 1000) + tonumber(ttl)
  local before, left = -tonumber(call('ZSCORE', QUEUE, owner)), call('PTTL', LOCK)
  if before >= ends and before <= EXACT and left >= tonumber(ttl) then
    return
  end
  -- A lease that nobody can have, beyond EXACT, is replaced by one that it can.
  if before < ends or before > EXACT then
    local refused = put(must_last(now, ends), 'ZADD', QUEUE, text(-ends), owner)
    if refused then
      return refused
    end
  end
  local lasts = pcall('PEXPIRE', WAITERS, text(must_last(now)))
  if failed(lasts) then
    return refusal(lasts, WAITERS)
  end
  return (select(3, write_phase(used, value, used, now)))
end

-- Reads K without the holders whose lease is over. Returns its value, the units in use if it is a phase, and
-- whether there were any: then the queue must move on, whatever else is done; and why some are still there, if so.
local function read_live(now)
  local value = read_lock()
  if failed(value) then
    return value
  end
  local used = phase_of(value)
  if not used then
    return value
  end
  local ended, units, refused = take_out(text(-math.floor(now / 1000)), now)
  ended = ended > 0
  if ended then
    -- One whose lease is over may never have been counted.
    value, used = give_back(units, false, value, used, now)
  elseif not refused and call('PTTL', LOCK) < 0 then
    -- Another program removed its expiry, which ends the phase.
    local ends, unknown = phase_end(now)
    if not ends and not unknown then
      call('DEL', LOCK)
      value, used, ended = false, nil, true
    end
  end
  return value, used, ended, refused
end

-- Tells holders that somebody waits: those who share for long may then make room.
local function tell_wanted()
  local owners = pcall('ZRANGE', QUEUE, '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 64)
  for _, owner in ipairs(failed(owners) and {} or owners) do
    local entry = pcall('HGET', WAITERS, owner)
    local inbox = string.match(type(entry) == 'string' and entry or '', '^([^|]+)|')
    if inbox and not tell_in_slot(inbox, 'w|' .. owner .. '|' .. LOCK) then
      pcall('PUBLISH', inbox, 'w|' .. owner .. '|' .. LOCK)
    end
  end
end

