-- Shared by the steps that take a lock, free it and pass it on. Comes after `clock.lua` and before
-- those steps.
--
-- KEYS     of one lock:
--          the lock K: a string `owner|since|ttl|host|pid|site|lock name`, since being server ms; then
--          `|passing`, if K passed on from another claim: since when it has, server us
--          the queue of K: owners by order of arrival, a sorted set
--          the waiters of K: by owner, all that a grant needs, a hash of
--          `inbox|stamp|confirmed|reach|grant_ttl|floor|ttl|host|pid|site|lock name`,
--          with `s units/limit|` before the floor for a claim that shares K
--          reach is 0 at first, 1 once passed over, 2 when it asked again after that;
--          and by the name `others`, `window|foreign`: until when K is left free, and until when a client of
--          another library is expected, both server us
--
-- Returns  what the step says that follows.
--
-- Atomic, because the next claim must not change between freeing a lock and granting it.
--
-- Anybody may have written what lies in these keys. What cannot be read counts for nothing, and goes.

-- The lock that is worked on.
local LOCK, QUEUE, WAITERS

-- How many entries one move looks at; what follows is the next one's work.
local WALK = 32
-- How many entries one script takes out at most: while it runs, the server serves nobody else.
local MOST = 4096
-- Nothing outlives its processes: a queue that nobody confirms goes away.
local QUEUE_KEPT = 30000

-- What several claims share is of `phase.lua`: a function that makes its functions.
local phases

-- Clients of other libraries poll K, and a lock that passes from claim to claim is never free. So after a
-- while it is left free for a moment before it passes on, us: sooner and longer if one of them had K within
-- half a minute, else just so that one can be found.
local OTHERS = 'others'
local EXPECTED = 30000000
local KNOWN_PASSES, KNOWN_WINDOW = 100000, 20000
local UNKNOWN_PASSES, UNKNOWN_WINDOW = 1000000, 10000

-- Numbers are exact up to this one.
local EXACT = 9007199254740992
-- The greatest number of a token beside that of `clock.lua`; the most units there can be; how far ahead of the server's
-- time the queue may reach, us; and the longest entry.
local LAST_NUMBER, MOST_UNITS, DAY, LONGEST_ENTRY = 127, 4294967295, 86400000000, 2048

-- What the next value of K ends with.
local PASSING

-- Reads what lies at K, or false. Ours are at most 512 bytes; of a foreign value no more is ever wanted,
-- however long it is.
local function read_lock()
  local value = pcall('GETRANGE', LOCK, 0, 511)
  -- What is not there reads as what is empty.
  return (value ~= '' or call('EXISTS', LOCK) == 1) and value
end

-- How long K stays, ms; -1 if that is not known. Beyond 2^53 Lua would not write it as an integer.
local function time_left()
  local left = pcall('PTTL', LOCK)
  return failed(left) and '-1' or text(math.min(left, EXACT))
end

-- Returns whether a value begins with this owner and a bar, which is byte 124.
local function is_of(value, owner)
  return value and string.byte(value, 33) == 124 and string.find(value, owner, 1, true) == 1
end

-- Reads a phase of `phase.lua`: the units in use, its token, the number of the history in which that was drawn, and the
-- token of before, both empty if there is none. Returns nothing for any other value, also for one that
-- only looks like it: that belongs to somebody else, as all do that are not ours.
local function phase_of(value)
  local used, ms, seq, number, drawn_in, first =
    string.match(value or '', '^shared(%d+)|(%d+)%-(%d+)%-(%d+)%-?(%d*)%-?([%d-]*)|')
  if not used or #used ~= 26 or tonumber(used) > EXACT then
    return
  end
  if tonumber(ms) <= LAST_MS and tonumber(seq) <= LAST_SEQ and tonumber(number) <= LAST_NUMBER then
    return tonumber(used), table.concat({ ms, seq, number }, '-'), drawn_in, first
  end
end

-- Returns whether a member of the queue can be the owner of a claim.
local function is_owner(name)
  return #name == 32 and not string.find(name, '%X')
end

-- Reads this text, which the waiters of K know of a claim. Returns nothing if it cannot be.
local function read_entry_of(owner, text, now)
  if not is_owner(owner) or type(text) ~= 'string' or #text > LONGEST_ENTRY then
    return
  end
  local inbox, stamp, confirmed, reach, grant_ttl, mode, floor, tail =
    string.match(text, '^([^|]*)|(%d+)|(%d+)|(%d)|(%d+)|([s%d/]-)|?(%d+%-%d+)|(.*)$')
  local units, limit = string.match(mode or '', '^s(%d+)/(%d+)$')
  units, limit = tonumber(units), tonumber(limit)
  if not inbox or tonumber(grant_ttl) > HOUR or tonumber(confirmed) > now + HOUR * 1000 then
    return
  end
  if mode ~= '' and not (units and units > 0 and units <= limit and limit <= MOST_UNITS) then
    return
  end
  return {
    inbox = inbox,
    stamp = stamp,
    confirmed = confirmed,
    -- Whether three confirmations are missing: its process is gone.
    gone = now - confirmed > grant_ttl * 1000,
    reach = reach,
    grant_ttl = grant_ttl,
    units = units,
    limit = limit,
    floor = floor,
    tail = tail,
    known = mode == '' and floor or mode .. '|' .. floor,
  }
end

local function read_entry(owner, now)
  return read_entry_of(owner, is_owner(owner) and pcall('HGET', WAITERS, owner), now)
end

-- Writes that a claim was passed over: it keeps its place, and is granted anyway once it asks again.
local function pass_over(owner, entry)
  local words = { entry.inbox, entry.stamp, entry.confirmed, '1', entry.grant_ttl, entry.known, entry.tail }
  pcall('HSET', WAITERS, owner, table.concat(words, '|'))
end

-- Only ever raises the expiry of K. Returns why it could not, if so.
local function raise_expiry(ttl)
  local left = pcall('PTTL', LOCK)
  local raised = not failed(left) and left < tonumber(ttl) and pcall('PEXPIRE', LOCK, ttl) or left
  return failed(raised) and refusal(raised, LOCK)
end

-- Writes K. Returns false, or why not.
local function take(owner, ttl, tail, now)
  local value = owner .. '|' .. text(math.floor(now / 1000)) .. '|' .. tail .. (PASSING or '')
  local set = pcall('SET', LOCK, value, 'PX', ttl)
  return failed(set) and refusal(set, LOCK)
end

-- Draws a token and takes K. Returns the token, or false and why not. The token first: if memory is full,
-- this is what is refused, and a token that serves no lock does no harm.
local function grant(owner, ttl, floor, tail, now)
  local token, refused = draw(floor, now)
  if token then
    refused = take(owner, ttl, tail, now)
  end
  if refused then
    return false, refused
  end
  return token
end

-- By pcall: whatever has become of the queue, a lock must be freed. Returns what was refused, if anything.
local function leave(owner)
  local left = pcall('ZREM', QUEUE, owner)
  if left == 1 then
    pcall('HDEL', WAITERS, owner)
  end
  return failed(left) and left
end

-- Writes to the queue or the waiters, which then last so long, ms. Returns why it could not: then nothing was written.
-- A user may lack PEXPIRE: that is known before there is anything without an expiry.
local function put(kept, command, key, ...)
  kept = text(math.min(kept, LAST_MS))
  local lasts = pcall('PEXPIRE', key, kept)
  local written = failed(lasts) and lasts or pcall(command, key, ...)
  if not failed(written) and lasts == 0 then
    -- It was not there.
    lasts = pcall('PEXPIRE', key, kept)
    if failed(lasts) then
      pcall('DEL', key)
      written = lasts
    end
  end
  return failed(written) and refusal(written, key)
end

-- Takes out what is known of claims that stand in no queue any more: somebody deleted it, or HDEL was
-- not permitted for a while. If that is more than one script may look at, a part of it.
local function sweep(now)
  local known, waiting = pcall('HLEN', WAITERS), pcall('ZCARD', QUEUE)
  local others = type(pcall('HGET', WAITERS, OTHERS)) == 'string' and 1 or 0
  if type(known) ~= 'number' or type(waiting) ~= 'number' or known - others <= waiting then
    return
  end
  local owners, step = nil, 1
  if known <= MOST then
    owners = pcall('HKEYS', WAITERS)
  else
    -- Any number is a cursor: this time here, next time elsewhere.
    owners, step = pcall('HSCAN', WAITERS, text(now % 4294967296), 'COUNT', MOST / 4), 2
    owners = failed(owners) and {} or owners[2]
  end
  for at = 1, failed(owners) and 0 or #owners, step do
    if owners[at] ~= OTHERS and pcall('ZSCORE', QUEUE, owners[at]) == false then
      pcall('HDEL', WAITERS, owners[at])
    end
  end
end

-- Reads until when K is left free, and until when a client of another library is expected. Neither can be far ahead.
local function others(now)
  local known = pcall('HGET', WAITERS, OTHERS)
  local window, foreign = string.match(type(known) == 'string' and known or '', '^(%d+)|(%d+)$')
  window, foreign = tonumber(window) or 0, tonumber(foreign) or 0
  return window, foreign - now <= EXPECTED and foreign or 0
end

-- By pcall: what cannot be written is not observed.
local function expect(window, foreign, now)
  local kept, lasts = math.ceil((math.max(window, foreign) - now) / 1000), pcall('PTTL', WAITERS)
  if not failed(lasts) then
    put(math.max(kept, lasts), 'HSET', WAITERS, OTHERS, text(window) .. '|' .. text(foreign))
  end
end

-- Notes that a client of another library has K.
local function meet(now)
  local window, foreign = others(now)
  if window ~= 0 or foreign - now < EXPECTED / 2 then
    expect(0, now + EXPECTED, now)
  end
end

-- Returns for how long K is left free, us. `freed` is its value if it was freed just now, in order to pass on.
local function left_free(freed, now)
  PASSING = ''
  local window, foreign = others(now)
  -- Not for longer, because a clock that stepped back must not keep K free.
  if not freed and now < window and window - now <= KNOWN_WINDOW then
    return window - now
  end
  if window ~= 0 then
    -- It is over. Whoever had K meanwhile must pass it on: nobody passes the queue twice.
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
  PASSING = '|' .. text(began)
  return 0
end

-- Returns whether anybody listens to a channel.
local function listens(channel, count)
  local listening = pcall('PUBSUB', count, channel)
  return not failed(listening) and listening[2] > 0
end

-- Sends a message to the inbox that a process has in the slot of K, if it listens there. The node of a cluster
-- passes it on to no other. Returns how many heard it, or false.
local function tell_in_slot(inbox, message)
  -- Its name ends as that of the slot's clock. Versions before 7.0 have no such channels.
  local slot = redis.REDIS_VERSION_NUM and string.match(CLOCK, ':{%d+}$')
  local heard = slot and listens(inbox .. slot, 'SHARDNUMSUB') and pcall('SPUBLISH', inbox .. slot, message)
  return heard and not failed(heard) and heard > 0 and heard
end

-- Sends a message to a process. Returns whether anybody heard it.
local function tell(inbox, message)
  if tell_in_slot(inbox, message) then
    return true
  end
  -- Asked before, because a replica delivers too, to those who still listen there, what was counted for
  -- nobody here.
  local heard = listens(inbox, 'NUMSUB') and pcall('PUBLISH', inbox, message)
  return heard and not failed(heard) and heard > 0
end

-- Has the first in the queue that can be reached ask again: K is free, and nobody else would tell.
local function call_next(now)
  -- What a phase left there has a negative score.
  local owners = pcall('ZRANGE', QUEUE, 0, '+inf', 'BYSCORE', 'LIMIT', 0, WALK)
  for _, owner in ipairs(failed(owners) and {} or owners) do
    local entry, message = read_entry(owner, now), owner .. '|again'
    local heard = entry and (tell_in_slot(entry.inbox, message) or pcall('PUBLISH', entry.inbox, message))
    if type(heard) == 'number' and heard > 0 then
      return
    end
  end
end

-- Puts a claim at the tail, or confirms its place, in a queue that is kept for so long, ms, if nobody confirms it.
-- Returns what was refused, if anything.
local function enter(owner, ticket, floor, tail, now, kept)
  local stamp, grant_ttl, inbox = string.match(ticket, '^(%d+)|(%d+)|(.*)$')
  local known, place = pcall('HGET', WAITERS, owner), pcall('ZSCORE', QUEUE, owner)
  if failed(known) then
    return refusal(known, WAITERS)
  end
  if failed(place) then
    return refusal(place, QUEUE)
  end
  local reach, score = '0', nil
  -- Nobody who shares K asks for a place: what a negative score is of is over.
  if known and place and tonumber(place) >= 0 then
    reach = string.match(known, '^[^|]*|[^|]*|[^|]*|(%d)') or '0'
    -- It asked again after it was passed over: it lives, and will learn of a grant by asking.
    if reach == '1' then
      reach = '2'
    end
  else
    sweep(now)
    local last = tonumber(call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')[2]) or 0
    -- Nobody can have come so much later.
    score = last > now + DAY and now or math.max(now, last + 1)
  end
  local entry = table.concat({ inbox, stamp, text(now), reach, grant_ttl, floor, tail }, '|')
  local refused = put(kept, 'HSET', WAITERS, owner, entry)
  if not refused and score then
    refused = put(kept, 'ZADD', QUEUE, score, owner)
    if refused then
      pcall('HDEL', WAITERS, owner)
    end
  elseif not refused then
    local lasts = pcall('PEXPIRE', QUEUE, text(kept))
    refused = failed(lasts) and refusal(lasts, QUEUE)
  end
  return refused
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
    local entry = read_entry(owner, now)
    if entry and entry.units then
      local ended = phases().walk(caller, now, false)
      return call('EXISTS', LOCK) == 1 and 'granted' or ended
    end
    if not entry or entry.gone then
      leave(owner)
    else
      local token, refused = grant(owner, entry.grant_ttl, entry.floor, entry.tail, now)
      if refused == 'c' then
        -- It knows of a token that can never be exceeded, and hears of it when it asks again.
        leave(owner)
      elseif not token then
        -- Memory is full, say. K stays free, and the queue as it is.
        return false
      else
        local message = table.concat({ owner, token, entry.grant_ttl, entry.stamp, LOCK }, '|')
        if not tell(entry.inbox, message) and entry.reach ~= '2' and not failed(pcall('DEL', LOCK)) then
          -- Nobody listens.
          pass_over(owner, entry)
        else
          leave(owner)
          return 'granted'
        end
      end
    end
  end
  return false
end

