-- Takes a lock beside those that share it, or a free one to share it, if nobody waits. Comes after `clock.lua` and
-- the function `library`, which does everything else that share.lua lists.
--
-- KEYS     as in share.lua
-- ARGV[1]  the step, and what follows it: as in share.lua
--
-- Returns  as share.lua.
--
-- Atomic, for the reasons of share.lua. It writes what the function `take` of phase.lua would write; what it cannot
-- do, or is refused, is left to that.

local byte, sub = string.byte, string.sub

-- As in queue.lua.
local QUEUE_KEPT = 30000

-- Nearly always nobody waits, and it fits. Then eight commands do.
local function join()
  local owner, ttl, deadline, tail, ticket, floor, mode, ended = unpack(ARGV, 2)
  local units, limit = string.match(mode, '^s(%d+)/(%d+)$')
  local lock, queue, waiters = unpack(KEYS)
  local value, last = pcall('GETRANGE', lock, 0, 511), pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local now = time()
  if ended or not units or failed(value) or failed(last) or now > tonumber(deadline) then
    return
  end
  local begins, used, token = value == '' and not last[1], nil, nil
  if begins then
    local id = draw(floor, now)
    used, token = id and 0, id and id .. '-0'
    value = string.rep(' ', 32) .. '|' .. (token or '') .. '|' .. tail
  elseif byte(value, 33) == 124 and sub(value, 1, 6) == 'shared' and last[2] and byte(last[2]) == 45 then
    -- The queue has nobody but holders.
    local ms, seq, number
    used, ms, seq, number = string.match(value, '^shared0000000000(%d+)|(%d+)%-(%d+)%-(%d+)|')
    used = used and ms - LAST_MS <= 0 and seq - LAST_SEQ <= 0 and number - 127 <= 0 and tonumber(used)
    token = used and ms .. '-' .. seq .. '-' .. number
  end
  if not used or used + units > tonumber(limit) then
    return
  end
  local now_ms = math.floor(now / 1000)
  local ends = text(-(now_ms + ttl))
  -- Whoever has a place is not new.
  if pcall('ZADD', queue, 'NX', ends, owner) ~= 1 then
    return
  end
  local stamp, grant_ttl, inbox = string.match(ticket, '^(%d+)|(%d+)|(.*)$')
  local entry = { inbox or '', stamp or '0', text(now), '0', grant_ttl or '0', mode, floor, tail }
  local set = pcall('HSET', waiters, owner, table.concat(entry, '|'))
  if not failed(set) then
    -- K ends with the last lease of all.
    local longest = begins and ends or call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
    value = string.format('shared%026d', used + units) .. sub(value, 33)
    -- Whether a lease of more than a day can be, phase.lua finds out.
    set = -longest - now_ms <= 86400000 + ttl and pcall('SET', lock, value, 'PXAT', sub(longest, 2), begins and 'NX' or 'XX')
  end
  if type(set) ~= 'table' or set.err then
    pcall('ZREM', queue, owner)
    pcall('HDEL', waiters, owner)
    return
  end
  if begins or call('PTTL', waiters) < ttl + 1000 then
    call('PEXPIRE', queue, ttl + QUEUE_KEPT)
    call('PEXPIRE', waiters, ttl + QUEUE_KEPT)
  end
  return { now, 'j' .. token }
end

return ARGV[1] == 'take' and join() or library()
