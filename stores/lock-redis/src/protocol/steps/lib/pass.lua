-- Passes a lock on to the first that waits for it, if nothing stands in the way. Comes before the steps that free
-- locks, whose other functions cost more than all that is done here.
--
-- KEYS     those of the step that follows, as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because the next claim must not change between freeing a lock and granting it. It is a copy of the work that `free` of free.lua
-- does by `left_free` of window.lua, `move_on` of grant.lua and `wake_watcher` of tell.lua. It covers an exclusive claim whose process
-- listens, while no client of another library is expected, and writes the same. If it cannot do its work, or is refused, they do it.

-- Returns whom to wake behind an heir that has waited for long, as `wake_watcher` of tell.lua: inboxes and owners, the next of them
-- for who does not hear the one before; nothing if one of the first two cannot be read, or was passed over. `owner` is who had K,
-- `enters` says that a claim enters behind all others in the same step.
local function watchers_to_wake(queue, waiters, owner, enters, now)
  local pcall, find, match = redis.pcall, string.find, string.match
  local behind = pcall('ZRANGE', queue, 1, WATCHERS, 'WITHSCORES')
  if behind.err then
    return
  end
  local wakes, last = {}, #behind - 1
  -- No claim sleeps behind one that came a short time ago. A claim that enters is awake.
  if last < 0 or now - behind[2] < ASLEEP_AFTER or enters and last < 2 * WATCHERS - 1 then
    return wakes
  end
  local entries = pcall('HMGET', waiters, behind[1], behind[last])
  local awake = false
  for at = last, 1, -2 do
    local name, entry = behind[at], entries[(at + 1) / 2]
    if not entry or #entry > LONGEST_ENTRY or name == owner or #name ~= 32 or find(name, '%X') then
      return
    end
    local inbox, confirmed, grant_ttl = match(entry, ENTRY_WATCHING)
    if not inbox or grant_ttl - HOUR > 0 or confirmed - now > HOUR * 1000 then
      return
    end
    -- A claim that is awake asks by itself.
    awake = awake or confirmed - now <= 0
    if not awake then
      wakes[#wakes + 1], wakes[#wakes + 2] = inbox, name
    end
  end
  return wakes
end

-- Returns the new value; false if the claim of this head has the lock and the queue is empty; else nothing, and the value at
-- the lock if the claim does not have it. `value` is that value, which the caller has read if it enters the queue in the same step.
local function pass_on(lock, queue, clock, head, value)
  local pcall, sub, match, format = redis.pcall, string.sub, string.match, string.format
  local enters = value
  value = value or pcall('GETRANGE', lock, 0, LONGEST_VALUE)
  if value.err or sub(value, 1, 33) ~= head then
    return nil, value
  end
  local first = pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if first.err then
    return
  end
  local owner, heir = sub(head, 1, 32), first[1]
  if not heir then
    return false
  end
  -- A claim has one owner. Only one whose answers were lost stands in the queue of its own lock.
  if heir == owner or #heir ~= 32 or string.find(heir, '%X') then
    return
  end
  local waiters = sub(queue, 1, -6) .. 'waiters'
  local known = pcall('HMGET', waiters, OTHERS, heir)
  local entry = not known[1] and known[2]
  if not entry or #entry > LONGEST_ENTRY then
    return
  end
  local inbox, stamp, confirmed, grant_ttl, floor_ms, floor_seq, tail = match(entry, ENTRY_ALONE)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if not inbox or now - confirmed > grant_ttl * 1000 or grant_ttl - HOUR > 0 or confirmed - now > HOUR * 1000 then
    return
  end
  -- Behind a claim that has waited for long, a claim may sleep that must be woken. A score below zero is left of a phase.
  local wakes
  if now - first[2] >= ASLEEP_AFTER then
    wakes = first[2] - 0 >= 0 and watchers_to_wake(queue, waiters, owner, enters, now)
    if not wakes then
      return
    end
  end
  local sleeper = wakes and wakes[1]
  -- The time since which K passes on has sixteen digits. A name with as many digits is taken for it only if the result is
  -- the same. After UNKNOWN_PASSES a window opens.
  local passing = sub(value, -17)
  local began = sub(passing, 1, 1) == '|' and tonumber(sub(passing, 2))
  if not began then
    passing = format('|%d', now)
  elseif began > now or now - began >= UNKNOWN_PASSES then
    return
  end
  -- As `tell` of tell.lua. The name of a slot's clock ends with a brace, which is byte 125.
  local slot = string.byte(clock, -1) == 125 and redis.REDIS_VERSION_NUM and match(clock, ':{%d+}$')
  local publish, listening = 'SPUBLISH', slot and pcall('PUBSUB', 'SHARDNUMSUB', inbox .. slot, (sleeper or inbox) .. slot)
  if not listening or listening.err or listening[2] == 0 then
    publish, slot = 'PUBLISH', ''
    listening = sleeper and pcall('PUBSUB', 'NUMSUB', inbox, sleeper) or pcall('PUBSUB', 'NUMSUB', inbox)
  end
  -- If two claims listen in different ways, each gets its message in its own way.
  if listening.err or listening[2] == 0 or listening[4] == 0 then
    return
  end
  -- As in batch.lua.
  local kept = now % EMPTIED_EVERY == 0 and '0' or now % TRIMMED_EVERY == 0 and '1'
  local id = kept and pcall('XADD', clock, 'MAXLEN', '~', kept, '*', 'k', 'v') or pcall('XADD', clock, '*', 'k', 'v')
  if id.err then
    return
  end
  -- `draw` of clock.lua corrects this case.
  local ms, seq = match(id, '^(%d+)-(%d+)$')
  local ahead = ms - floor_ms
  if ahead < 0 or ahead == 0 and seq - floor_seq <= 0 or seq - LAST_SEQ > 0 or ms - now / 1000 > HOUR then
    return
  end
  local next_value = heir .. '|' .. format('%d', now / 1000) .. '|' .. tail .. passing
  if pcall('SET', lock, next_value, 'PX', grant_ttl).err then
    return
  end
  local message = heir .. '|' .. id .. '|' .. grant_ttl .. '|' .. stamp .. '|' .. lock
  local heard = pcall(publish, inbox .. slot, message)
  if type(heard) ~= 'number' or heard == 0 then
    -- Not permitted. The code below finds K as it was, and frees it. If that fails, the next claim finds that it has K.
    return pcall('SET', lock, value, 'PX', 1000).err and next_value or nil
  end
  pcall('ZREM', queue, owner, heir)
  pcall('HDEL', waiters, owner, heir)
  for at = 1, wakes and #wakes or 0, 2 do
    heard = pcall(publish, wakes[at] .. slot, wakes[at + 1] .. '|again')
    if type(heard) == 'number' and heard > 0 then
      break
    end
  end
  return next_value
end

-- Takes a claim out of a phase, if no claim waits and no lease has ended. Otherwise returns nothing. It is a copy of the work that
-- `free` of phase/steps.lua does then, and writes the same. `value` is the value at the lock.
local function leave_phase(lock, queue, head, value)
  local pcall, match, format, owner = redis.pcall, string.match, string.format, string.sub(head, 1, 32)
  local used = not value.err and string.byte(value, 33) == BAR and tonumber((match(value, PHASE)))
  if not used or used > EXACT then
    return
  end
  local waiters = string.gsub(queue, 'queue$', 'waiters')
  local entry, first = pcall('HGET', waiters, owner), pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
  local last = first[4] and pcall('ZRANGE', queue, -1, -1, 'WITHSCORES') or first
  local units, time = tonumber(type(entry) == 'string' and match(entry, ENTRY_SHARING) or 0), redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- The latest lease of another claim. A waiter's score is positive. A lease of more than a day takes a closer look.
  local longest = -(first[first[1] == owner and 4 or 2] or 0)
  if units == 0 or last.err or -(last[2] or 0) <= now or longest - now > DAY then
    return
  end
  -- If the number does not match the holders, phase/ counts them.
  if (longest == 0 and units ~= used) or (longest ~= 0 and units >= used) or pcall('ZREM', queue, owner) ~= 1 then
    return
  end
  pcall('HDEL', waiters, owner)
  if longest ~= 0 then
    -- If that is refused, too much is in use until K ends.
    pcall('SET', lock, format(PHASE_HEAD, used - units) .. string.sub(value, 33), 'PXAT', format('%d', longest))
    return 1
  end
  local freed = pcall('DEL', lock)
  return type(freed) == 'table' and 'e' .. freed.err or 1
end
