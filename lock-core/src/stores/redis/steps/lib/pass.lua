-- Passes a lock on to the first that waits for it, if nothing stands in the way. Comes before the steps that free
-- locks, whose other functions cost more than all that is done here.
--
-- KEYS     those of the step that follows, as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because the next claim must not change between freeing a lock and granting it. It is a copy of what `free` of free.lua
-- does by `left_free` of window.lua and `move_on` of grant.lua, and writes what they would write for a claim that wants the lock for itself, whose process listens, while no
-- client of another library is expected. What it cannot do, or is refused, is left to them.

-- Returns the new value; false if the claim of this head has the lock and nobody waits; else nothing. `value` is what
-- lies at the lock, if that is known.
local function pass_on(lock, queue, clock, head, value)
  local pcall, sub, match, format = redis.pcall, string.sub, string.match, string.format
  value = value or pcall('GETRANGE', lock, 0, 511)
  if value.err or sub(value, 1, 33) ~= head then
    return
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
  if heir == owner or #heir ~= 32 then
    return
  end
  local waiters = sub(queue, 1, -6) .. 'waiters'
  local known = pcall('HMGET', waiters, OTHERS, heir)
  local entry = not known[1] and known[2]
  if not entry then
    return
  end
  local inbox, stamp, confirmed, grant_ttl, floor_ms, floor_seq, tail = match(entry, ENTRY_ALONE)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  -- Behind one that has waited for long somebody may sleep who must be woken.
  if not inbox or now - confirmed > grant_ttl * 1000 or now - first[2] >= ASLEEP_AFTER then
    return
  end
  -- The time since when K passes on has sixteen digits. A name of as many is taken for it only if that makes no
  -- difference. After UNKNOWN_PASSES a window opens.
  local passing = sub(value, -17)
  local began = sub(passing, 1, 1) == '|' and tonumber(sub(passing, 2))
  if not began then
    passing = format('|%d', now)
  elseif began > now or now - began >= UNKNOWN_PASSES then
    return
  end
  -- As `tell` of tell.lua. The name of a slot's clock ends with a brace, which is byte 125.
  local slot = string.byte(clock, -1) == 125 and redis.REDIS_VERSION_NUM and match(clock, ':{%d+}$')
  local publish, listening = 'SPUBLISH', slot and pcall('PUBSUB', 'SHARDNUMSUB', inbox .. slot)
  if listening and not listening.err and listening[2] > 0 then
    inbox = inbox .. slot
  else
    publish, listening = 'PUBLISH', pcall('PUBSUB', 'NUMSUB', inbox)
    if listening.err or listening[2] == 0 then
      return
    end
  end
  -- As in batch.lua.
  local kept = now % EMPTIED_EVERY == 0 and '0' or now % TRIMMED_EVERY == 0 and '1'
  local id = kept and pcall('XADD', clock, 'MAXLEN', '~', kept, '*', 'k', 'v') or pcall('XADD', clock, '*', 'k', 'v')
  if id.err then
    return
  end
  -- What `draw` of clock.lua would correct, that has to.
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
  local heard = pcall(publish, inbox, message)
  if type(heard) ~= 'number' or heard == 0 then
    -- Not permitted. What follows finds K as it was, and frees it. If that cannot be, the next one finds that it has K.
    return pcall('SET', lock, value, 'PX', 1000).err and next_value or nil
  end
  pcall('ZREM', queue, owner, heir)
  pcall('HDEL', waiters, owner, heir)
  return next_value
end

