-- Takes a lock beside those that share it, or a free one to share it, if nobody waits. Comes after `clock.lua`, `entry.lua`
-- and the function `library`, which does everything else that share.lua lists.
--
-- KEYS     as in share.lua
-- ARGV[1]  the step, and what follows it: as in share.lua
--
-- Returns  as share.lua.
--
-- Atomic, for the reasons of share.lua. It is a copy of `acquire` of phase/steps.lua, and writes what that would write; what it
-- cannot do, or is refused, is left to that. Only those whose leases are over it leaves where they are: what they had counts until
-- somebody does not fit.

local byte, sub = string.byte, string.sub

-- Nearly always nobody waits, and it fits. Then eight commands do.
local function join_if_nobody_waits()
  local owner, ttl, deadline, tail, ticket, floor, mode, history, ended = unpack(ARGV, 2)
  local units, limit = string.match(mode, SHARING)
  local lock, queue, waiters = unpack(KEYS)
  local value, last = pcall('GETRANGE', lock, 0, LONGEST_VALUE), pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local now = time()
  if ended or not units or failed(value) or failed(last) or now > tonumber(deadline) then
    return
  end
  -- A free lock without a queue begins a phase; a phase whose queue has nobody but holders takes one more. Anything else stays
  -- without `used` here.
  local begins, used, token = value == '' and not last[1], nil, nil
  if begins then
    local id = draw(floor, now)
    used, token = id and 0, id and id .. '-0'
    value = string.rep(' ', 32) .. '|' .. (token or '') .. '|' .. tail .. (history == '' and '' or '|' .. history)
  elseif byte(value, 33) == BAR and sub(value, 1, 6) == 'shared' and last[2] and byte(last[2]) == 45 then
    -- Byte 45 is the minus of the greatest score: nobody waits.
    local ms, seq, number
    used, ms, seq, number = string.match(value, PHASE_TO_JOIN)
    used = used and ms - LAST_MS <= 0 and seq - LAST_SEQ <= 0 and number - LAST_NUMBER <= 0 and tonumber(used)
    token = used and ms .. '-' .. seq .. '-' .. number
    local drawn_in = string.match(value, PHASE_DRAWN_IN) or ''
    if drawn_in ~= '' and history ~= '' and drawn_in ~= history then
      -- Perhaps it outlived a failover.
      return
    end
  end
  if not used or not token or used + units > tonumber(limit) then
    return
  end
  local lasts = text(ttl + QUEUE_KEPT)
  if not begins then
    local left = pcall('PTTL', waiters)
    -- Both keys must outlive the new lease, and mostly do: they were made to last longer than one.
    if failed(left) or left < 0 then
      -- Somebody deleted them.
      return
    elseif left < ttl + 1000 then
      if failed(pcall('PEXPIRE', queue, lasts)) or failed(pcall('PEXPIRE', waiters, lasts)) then
        return
      end
    end
  end
  local now_ms = math.floor(now / 1000)
  local ends = text(-(now_ms + ttl))
  -- A claim that has a place is not new.
  if pcall('ZADD', queue, 'NX', ends, owner) ~= 1 then
    return
  end
  local set = begins and pcall('PEXPIRE', queue, lasts)
  if not failed(set) then
    set = pcall('HSET', waiters, owner, pack_entry(ticket, text(now), '0', mode .. '|' .. floor, tail))
  end
  if begins and not failed(set) then
    set = pcall('PEXPIRE', waiters, lasts)
  end
  if not failed(set) then
    -- K ends with the last lease of all. It is written last: without it nothing is held.
    local longest = begins and ends or (pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')[2] or ends)
    value = string.format(PHASE_HEAD, used + units) .. sub(value, 33)
    -- Whether a lease of more than a day can be, phase/ finds out.
    set = -longest - now_ms <= DAY + ttl and pcall('SET', lock, value, 'PXAT', sub(longest, 2), begins and 'NX' or 'XX')
  end
  -- SET answers with a status, which is a table here; false if NX or XX said no.
  if type(set) ~= 'table' or set.err then
    pcall('HDEL', waiters, owner)
    if failed(pcall('ZREM', queue, owner)) then
      -- It was let in by a ZADD.
      pcall(begins and 'DEL' or 'ZADD', queue, unpack(begins and {} or { 0, owner }))
    end
    return
  end
  return { now, 'j' .. token }
end

return ARGV[1] == 'take' and join_if_nobody_waits() or library()
