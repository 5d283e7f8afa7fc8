-- Tells processes what has become of their claims. Comes after `queue.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because a grant that nobody heard is taken back in the same step.

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

-- Tells a claim that it is granted, for as long as its entry says. Returns whether anybody heard it.
local function tell_granted(owner, entry, token)
  return tell(entry.inbox, table.concat({ owner, token, entry.grant_ttl, entry.stamp, LOCK }, '|'))
end

-- Has the first in the queue that can be reached ask again, behind so many: K is free, and nobody else would tell.
local function call_next(now, behind)
  -- Entries of a phase have a negative score.
  local owners = pcall('ZRANGE', QUEUE, 0, '+inf', 'BYSCORE', 'LIMIT', behind, WALK)
  for _, owner in ipairs(failed(owners) and {} or owners) do
    local entry, message = read_entry(owner, now), owner .. '|again'
    local heard = entry and (tell_in_slot(entry.inbox, message) or pcall('PUBLISH', entry.inbox, message))
    if type(heard) == 'number' and heard > 0 then
      return
    end
  end
end

-- Wakes one of the first two claims that can be reached, if it sleeps, so that it asks again. K has another holder now, and a claim
-- that has become one of the two does not know that it must watch. This is the second, or the first if the second cannot be reached.
local function wake_watcher(now)
  local owners = pcall('ZRANGE', QUEUE, 0, '+inf', 'BYSCORE', 'LIMIT', 0, WALK, 'WITHSCORES')
  -- No claim sleeps behind one that came a short time ago.
  if failed(owners) or not owners[2] or now - owners[2] < ASLEEP_AFTER then
    return
  end
  local watchers = {}
  for at = 1, #owners, 2 do
    local entry = read_entry(owners[at], now)
    if entry and entry.reach ~= '1' then
      table.insert(watchers, 1, { owners[at], entry })
    end
    if #watchers == WATCHERS then
      break
    end
  end
  for _, watcher in ipairs(watchers) do
    local owner, entry = unpack(watcher)
    if not entry.asleep or tell(entry.inbox, owner .. '|again') then
      return
    end
  end
end
