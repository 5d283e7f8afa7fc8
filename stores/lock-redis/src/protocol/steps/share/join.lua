-- Takes a lock beside the claims that share it, or a free one to share it, if no claim waits and no lease has ended. Comes after
-- `queue.lua` and the function `library`, which does everything else that share.lua lists.
--
-- KEYS     as in share.lua
-- ARGV[1]  the step, and what follows it: as in share.lua
--
-- Returns  as share.lua.
--
-- Atomic, for the reasons of share.lua. It is a copy of the work that `acquire` of phase/steps.lua does then, and writes the same.
-- If it cannot do its work, or is refused, it undoes it, and phase/ does it: to make the functions of phase/ costs more.

LOCK, QUEUE, WAITERS = KEYS[1], KEYS[2], KEYS[3]

local function join()
  local owner, ttl, deadline, tail, ticket, floor, mode, history, ended = unpack(ARGV, 2)
  local units, limit = string.match(mode, SHARING)
  local value, now = pcall('GETRANGE', LOCK, 0, LONGEST_VALUE), time()
  local first = pcall('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
  local last = first[1] and pcall('ZRANGE', QUEUE, -1, -1, 'WITHSCORES') or first
  if ended or not units or history == '' or failed(value) or failed(last) or now > tonumber(deadline) then
    return
  end
  local now_ms = math.floor(now / 1000)
  local ends = now_ms + ttl
  -- K ends with the last lease of all. A waiter's score is positive. A lease of more than a day, and a name that no claim has, take
  -- a closer look.
  local longest = math.max(ends, -(first[2] or 0))
  local used, token, drawn_in = phase_of(value)
  if first[1] then
    -- A token of another history is drawn anew, and a claim that has a place is not new.
    if -last[2] <= now_ms or not is_owner(first[1]) or drawn_in ~= '' and drawn_in ~= history or pcall('ZSCORE', QUEUE, owner) then
      return
    end
  else
    local id = value == '' and draw(floor, now)
    used, token = id and 0, id and id .. '-0'
    value = string.rep(' ', 32) .. '|' .. (token or '') .. '|' .. tail .. '|' .. history
  end
  if not used or used + units > tonumber(limit) or longest - now_ms > DAY then
    return
  end
  local entry = pack_entry(ticket, text(now), '0', mode .. '|' .. floor, tail)
  if let_in(owner, entry, ends, longest - now_ms + QUEUE_KEPT) then
    return
  end
  -- K is written last: without it nothing is held. SET answers with a status, which is a table, or false.
  value = string.format(PHASE_HEAD, used + units) .. string.sub(value, 33)
  local set = pcall('SET', LOCK, value, 'PXAT', text(longest), first[1] and 'XX' or 'NX')
  if not set or set.err then
    put_back(owner)
    return
  end
  return { now, 'j' .. token }
end

return ARGV[1] == 'take' and join() or library()
