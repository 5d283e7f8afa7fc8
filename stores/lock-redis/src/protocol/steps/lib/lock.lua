-- Reads and writes one lock. Comes after `clock.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because the holder of K must not change between reading and writing it.
--
-- Any program may have written to these keys. An unreadable part does not count, and is removed.

-- The lock that is worked on.
local LOCK, QUEUE, WAITERS

-- The end of the next value of K: `|passing`, or nothing. `left_free` sets it for a lock that was freed in order to pass on.
-- Every step that turns to another lock sets it again.
local SUFFIX

-- Reads what lies at K, or false. Ours are at most 544 bytes; of a foreign value no more is ever wanted,
-- however long it is.
local function read_lock()
  local value = pcall('GETRANGE', LOCK, 0, LONGEST_VALUE)
  -- A missing key reads like an empty one.
  return (value ~= '' or call('EXISTS', LOCK) == 1) and value
end

-- How long K stays, ms; -1 if that is not known. Beyond 2^53 Lua would not write it as an integer.
local function time_left()
  local left = pcall('PTTL', LOCK)
  return failed(left) and '-1' or text(math.min(left, EXACT))
end

-- Returns whether a value begins with this owner and a bar.
local function is_of(value, owner)
  return value and string.byte(value, 33) == BAR and string.find(value, owner, 1, true) == 1
end

-- Reads a phase: the units in use, its token, the number of the history in which that was drawn, and the
-- token of before, both empty if there is none. Returns nothing for any other value, also for one that
-- only looks like it: that belongs to somebody else, as all do that are not ours.
local function phase_of(value)
  local used, ms, seq, number = string.match(value or '', PHASE)
  if not used or #used ~= 26 or tonumber(used) > EXACT then
    return
  end
  if tonumber(ms) <= LAST_MS and tonumber(seq) <= LAST_SEQ and tonumber(number) <= LAST_NUMBER then
    local drawn_in, first = string.match(value, PHASE_DRAWN_IN)
    return tonumber(used), table.concat({ ms, seq, number }, '-'), drawn_in or '', first or ''
  end
end

-- Only ever raises the expiry of K. Returns why it could not, if so.
local function raise_expiry(ttl)
  local left = pcall('PTTL', LOCK)
  local raised = not failed(left) and left < tonumber(ttl) and pcall('PEXPIRE', LOCK, ttl) or left
  return failed(raised) and refusal(raised, LOCK)
end

-- Writes K, which is then this claim's alone. Returns false, or why not.
local function write_lock(owner, ttl, tail, now)
  local value = owner .. '|' .. text(math.floor(now / 1000)) .. '|' .. tail .. (SUFFIX or '')
  local set = pcall('SET', LOCK, value, 'PX', ttl)
  return failed(set) and refusal(set, LOCK)
end

