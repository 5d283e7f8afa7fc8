-- Leaves a lock free for a moment now and then, for clients of other libraries. Comes after `queue.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because a window must begin in the step that frees the lock: nobody may take it in between.
--
-- A lock that nobody of ours waits for needs no window: it is free anyway. No window opens while K is in a phase or passes on
-- from one, and one that is open ends with it.

-- Reads until when K is left free, and until when a client of another library is expected. Neither can be far ahead.
local function others(now)
  local known = pcall('HGET', WAITERS, OTHERS)
  local window, foreign = string.match(type(known) == 'string' and known or '', '^(%d+)|(%d+)$')
  window, foreign = tonumber(window) or 0, tonumber(foreign) or 0
  return window, foreign - now <= EXPECTED and foreign or 0
end

-- Writes both. By pcall: what cannot be written is not observed.
local function expect(window, foreign, now)
  local lasts, before = math.ceil((math.max(window, foreign) - now) / 1000), pcall('PTTL', WAITERS)
  if not failed(before) then
    put(math.max(lasts, before), 'HSET', WAITERS, OTHERS, text(window) .. '|' .. text(foreign))
  end
end

-- Notes that a client of another library has K. An open window has served its purpose.
local function meet(now)
  local window, foreign = others(now)
  if window ~= 0 or foreign - now < EXPECTED / 2 then
    expect(0, now + EXPECTED, now)
  end
end

-- Returns for how long K is left free, us. `freed` is its value if it was freed just now, in order to pass on.
local function left_free(freed, now)
  SUFFIX = ''
  local window, foreign = others(now)
  -- Not for longer, because a clock that stepped back must not keep K free.
  if not freed and now < window and window - now <= KNOWN_WINDOW then
    return window - now
  end
  if window ~= 0 then
    -- The window has ended. A claim that had K meanwhile must pass it on, so that no claim passes the queue twice.
    if now < foreign then
      expect(0, foreign, now)
    else
      pcall('HDEL', WAITERS, OTHERS)
    end
  end
  if not freed then
    return 0
  end
  local known = now < foreign
  -- A value of ours; anything else tells nothing.
  local since, passing = string.match(freed, '^%x+|(%d+)|%d+|[^|]*|%d+|[^|]*|[^|]*|?(%d*)$')
  local began = math.min(tonumber(passing) or known and since and since * 1000 or now, now)
  if now - began >= (known and KNOWN_PASSES or UNKNOWN_PASSES) then
    local time = known and KNOWN_WINDOW or UNKNOWN_WINDOW
    expect(now + time, foreign, now)
    return time
  end
  SUFFIX = '|' .. text(began)
  return 0
end

