-- Draws tokens from the server's clock: a stream whose ids rise with the server's time and never fall,
-- even when that time steps back. Comes before the steps that grant.
--
-- KEYS     the last one: the clock
--
-- Returns  what the step says that follows.
--
-- Atomic, because a token must be drawn at the instant its lock is taken.

local call, pcall = redis.call, redis.pcall
local CLOCK = KEYS[#KEYS]

-- Lua's own conversion would write 1.79e+15.
local function text(number)
  return string.format('%d', number)
end

local function failed(answer)
  return type(answer) == 'table' and answer.err
end

local function mistyped(answer)
  return string.find(answer.err, 'WRONGTYPE', 1, true)
end

-- Says why a step could not be done.
local function refusal(answer, name)
  return mistyped(answer) and 't' .. name or 'e' .. answer.err
end

-- Server time in us.
local function time()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function numbers(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

-- How many of the clock's entries must stay, at least. The server removes only whole blocks of entries, about a
-- hundred each unless it is configured otherwise, and the newest block stays. With 0 it goes too, which costs
-- more: so it is done now and then, and no configuration lets the clock grow.
local function draws_kept(now)
  return now % EMPTIED_EVERY == 0 and '0' or '1'
end

-- Draws an id greater than all before it, and than the floor. Returns false and why if there is none:
-- `c` if the floor lies too far ahead.
local function draw(floor, now)
  local floor_ms, floor_seq = numbers(floor)
  local now_ms = math.floor(now / 1000)
  if floor_ms > now_ms + HOUR then
    return false, 'c'
  end
  local id = pcall('XADD', CLOCK, 'MAXLEN', '~', draws_kept(now), '*', 'k', 'v')
  local ms, seq = LAST_MS + 1, 0
  if not failed(id) then
    ms, seq = numbers(id)
  elseif not string.find(id.err, 'exhausted', 1, true) then
    return false, refusal(id, CLOCK)
  end
  if ms > LAST_MS then
    -- Somebody wrote nonsense: no lock could be taken ever after. The stream begins anew.
    pcall('DEL', CLOCK)
    id = text(math.max(now_ms, floor_ms + 1)) .. '-0'
  elseif seq > LAST_SEQ or ms < floor_ms or ms == floor_ms and seq <= floor_seq then
    -- The drawn token does not exceed the floor, or its number does not fit into a token. A token of the next ms satisfies both.
    id = text(math.max(ms, floor_ms) + 1) .. '-0'
  else
    return id
  end
  id = pcall('XADD', CLOCK, 'MAXLEN', '~', '1', id, 'k', 'v')
  if failed(id) then
    return false, refusal(id, CLOCK)
  end
  return id
end

