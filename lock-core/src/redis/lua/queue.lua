-- What the steps that take, free and pass on a lock share. Put before them.
--
-- KEYS     of one lock, four at a time:
--          the lock K: a string `owner|token|ttl|host|pid|site|lock name`
--          the fence of K: the last token given
--          the queue of K: owners by order of arrival, a sorted set
--          the waiters of K: by owner, all that a grant needs, a hash of
--          `inbox|stamp|confirmed|reach|grant_ttl|block|floor|ttl|host|pid|site|lock name`
--          reach is 0 at first, 1 once passed over, 2 when it asked again after that
-- ARGV[1]  retention of the fence, ms
--
-- Returns  what the step says that follows.
--
-- Atomic, because who is next must not change between freeing a lock and granting it.

local call, pcall = redis.call, redis.pcall
-- The lock that is worked on.
local LOCK, FENCE, QUEUE, WAITERS
local RETENTION = ARGV[1]

-- Turns to the lock whose keys follow the first `behind` ones.
local function turn_to(behind)
  LOCK, FENCE, QUEUE, WAITERS = KEYS[behind + 1], KEYS[behind + 2], KEYS[behind + 3], KEYS[behind + 4]
end

-- How many entries one move looks at; what follows is the next one's work.
local WALK = 32
-- Nothing outlives its processes: a queue that nobody confirms goes away.
local QUEUE_KEPT = 30000

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

local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Reads what lies at K, or false. Ours are at most 512 bytes; of a foreign value no more is ever wanted,
-- however long it is.
local function read_lock()
  local value = pcall('GETRANGE', LOCK, 0, 511)
  -- What is not there reads as what is empty.
  return (value ~= '' or call('EXISTS', LOCK) == 1) and value
end

-- How long K stays, ms. Beyond 2^53 Lua would not write it as an integer.
local function time_left()
  return text(math.min(call('PTTL', LOCK), 9007199254740992))
end

-- Returns whether a value begins with this owner and a bar, which is byte 124.
local function is_of(value, owner)
  return value and string.byte(value, 33) == 124 and string.find(value, owner, 1, true) == 1
end

-- Reserves a block of tokens and writes K. Returns the first token, or false and why not.
-- Never leaves a lock that nobody was told of.
local function grant(owner, ttl, block, floor, tail, now)
  local token = math.max(now, floor + 1)
  -- The fence first: if memory is full, this is what is refused, and nothing has been done. A fence
  -- that is ahead of a lock that was not taken does no harm. The clock is nearly always ahead of
  -- the last token, so the fence is written at once and corrected if need be.
  local last = pcall('SET', FENCE, text(token + block - 1), 'PX', RETENTION, 'GET')
  if failed(last) then
    return false, refusal(last, FENCE)
  end
  last = last and tonumber(last)
  -- Foreign text counts as no token, and so does what a block could not exceed exactly (2^53 is
  -- 9007199254740992).
  if last and last >= token and last <= 9002000000000000 then
    token = last + 1
    call('SET', FENCE, text(token + block - 1), 'PX', RETENTION)
  end
  local set = pcall('SET', LOCK, owner .. '|' .. text(token) .. '|' .. tail, 'PX', ttl)
  if failed(set) then
    return false, refusal(set, LOCK)
  end
  return token
end

-- By pcall: whatever has become of the queue, a lock must be freed.
local function leave(owner)
  if pcall('ZREM', QUEUE, owner) == 1 then
    pcall('HDEL', WAITERS, owner)
  end
end

-- Puts a claim at the tail, or confirms its place. Returns what was refused, if anything.
local function enter(owner, ticket, block, floor, tail, now)
  local stamp, grant_ttl, inbox = string.match(ticket, '^(%d+)|(%d+)|(.*)$')
  local known, place = pcall('HGET', WAITERS, owner), pcall('ZSCORE', QUEUE, owner)
  if failed(known) then
    return refusal(known, WAITERS)
  end
  if failed(place) then
    return refusal(place, QUEUE)
  end
  local reach = '0'
  if known and place then
    reach = string.match(known, '^[^|]*|[^|]*|[^|]*|(%d)') or '0'
    -- It asked again after it was passed over: it lives, and will learn of a grant by asking.
    if reach == '1' then
      reach = '2'
    end
  else
    local tail_of_queue = call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')[2]
    call('ZADD', QUEUE, math.max(now, (tonumber(tail_of_queue) or 0) + 1), owner)
    call('PEXPIRE', QUEUE, QUEUE_KEPT)
  end
  local entry = table.concat({ inbox, stamp, text(now), reach, grant_ttl, block, floor, tail }, '|')
  call('HSET', WAITERS, owner, entry)
  call('PEXPIRE', WAITERS, QUEUE_KEPT)
  call('PEXPIRE', QUEUE, QUEUE_KEPT)
end

-- Grants a free K to the first in the queue that can be reached. Returns 'caller' if that is the
-- caller, who is granted in the reply instead, 'granted' if K has a new owner, or false.
local function move_on(caller, now)
  local owners = pcall('ZRANGE', QUEUE, 0, WALK - 1)
  if failed(owners) then
    return false
  end
  for _, owner in ipairs(owners) do
    if owner == caller then
      return 'caller'
    end
    local entry = pcall('HGET', WAITERS, owner)
    local inbox, stamp, confirmed, reach, grant_ttl, block, floor, tail =
      string.match(type(entry) == 'string' and entry or '', '^([^|]*)|(%d+)|(%d+)|(%d)|(%d+)|(%d+)|(%d+)|(.*)$')
    if not inbox or now - tonumber(confirmed) > tonumber(grant_ttl) * 1000 then
      -- Three confirmations are missing: its process is gone.
      leave(owner)
    else
      local token, refused = grant(owner, grant_ttl, tonumber(block), tonumber(floor), tail, now)
      if not token then
        -- Memory is full, say. K stays free, and the queue as it is.
        return false
      end
      local message = table.concat({ owner, text(token), block, grant_ttl, stamp, LOCK }, '|')
      -- Asked before, because a replica delivers too, to those who still listen there, what was counted for nobody here.
      local listening = pcall('PUBSUB', 'NUMSUB', inbox)
      local heard = (failed(listening) or listening[2] == 0) and 0 or pcall('PUBLISH', inbox, message)
      if (failed(heard) or heard == 0) and reach ~= '2' then
        -- Nobody listens: it keeps its place, and is granted anyway once it asks again.
        call('DEL', LOCK)
        entry = table.concat({ inbox, stamp, confirmed, '1', grant_ttl, block, floor, tail }, '|')
        call('HSET', WAITERS, owner, entry)
      else
        leave(owner)
        return 'granted'
      end
    end
  end
  return false
end

-- Gives back the part of a block that was not used, or the sequence would outrun the clock, and
-- tokens would fall after a flush. Only for the owner of K, whose value is given.
local function give_back(value, used)
  if used > 0 then
    used = math.max(used, tonumber(string.match(value, '^%x+|(%d+)|') or '0'))
    local reserved = tonumber(pcall('GET', FENCE))
    if not reserved or reserved > used then
      pcall('SET', FENCE, text(used), 'PX', RETENTION)
    end
  end
end

-- Takes K for a claim, confirms it, or tells who has it. A ticket is `stamp|grant_ttl|inbox`, or
-- empty not to queue. Returns what `acquire.lua` does.
local function acquire(owner, ttl, floor, block, tail, ticket, now)
  local value = read_lock()
  if failed(value) then
    return refusal(value, LOCK)
  end
  if is_of(value, owner) then
    -- A repeat: its answer may have been lost. Only ever raise the expiry.
    if call('PTTL', LOCK) < tonumber(ttl) then
      call('PEXPIRE', LOCK, ttl)
    end
    leave(owner)
    return 'm' .. (string.match(value, '^%x+|(%d+)|') or '0')
  end
  if not value then
    local waiting = call('EXISTS', QUEUE) == 1
    if not waiting or move_on(owner, now) ~= 'granted' then
      if waiting then
        leave(owner)
      end
      local token, refused = grant(owner, ttl, tonumber(block), tonumber(floor), tail, now)
      return token or refused
    end
    value = read_lock()
  end
  local state = 'h'
  if ticket ~= '' then
    local refused = enter(owner, ticket, block, floor, tail, now)
    if refused then
      return refused
    end
    state = 'q'
  end
  return state .. time_left() .. '|' .. value
end

-- The steps by their letter: what each does with the arguments behind the first `at` ones.
local STEPS = {}
