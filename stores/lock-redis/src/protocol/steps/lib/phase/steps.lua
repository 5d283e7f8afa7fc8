-- The steps of claims on a lock that is shared, or that they want to share. Comes after `walk.lua`, and ends the function `phases`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because units and leases must agree, and because who is next must not change before it is granted.

-- Takes K, alone or beside others, confirms it, or queues the claim. Returns what acquire.lua does. `moved` says that the queue
-- must move on, whatever becomes of the claim; `more` why some are still there whose leases are over.
local function take_or_wait(claim, now, value, used, moved, more)
  local owner, ttl, tail, ticket, floor, mode = unpack(claim)
  local units, limit = terms(mode)
  local known = units and mode .. '|' .. floor or floor
  if is_of(value, owner) then
    local token, refused = draw(floor, now)
    refused = not token and refused or raise_expiry(ttl)
    leave(owner)
    return refused or 'g' .. token
  end
  local shares = holds(owner, used)
  if shares and not units then
    -- It asks for K alone, as it did before it became one of those who share; if it has, its entry names its units.
    local entry = pcall('HGET', WAITERS, owner)
    if failed(entry) then
      return refusal(entry, WAITERS)
    end
    entry = unpack_entry(owner, entry, now)
    shares = entry and entry.units
  end
  if shares then
    local refused = raise(owner, ttl, now, value, used)
    if moved then
      walk('', now, value, used)
    end
    return refused or (wanted() and 'w' or 'j') .. select(2, phase_of(value))
  end
  if fits(value, used, units, limit) then
    -- It comes after all who wait: they are granted first, as far as they fit.
    local ended
    ended, value, used = walk(owner, now, value, used)
    if ended == 'more' then
      return 's'
    elseif ended ~= 'blocked' and fits(value, used, units, limit) then
      if not units then
        local token, refused = grant(owner, ttl, floor, tail, now)
        if token then
          leave(owner)
          wake_watcher(now)
        end
        return token and 'g' .. token or refused
      end
      -- Its entry in the waiters is written before it is let in, and put back if it cannot be let in.
      local ends, before = math.floor(now / 1000) + tonumber(ttl), pcall('HGET', WAITERS, owner)
      local entry = pack_entry(ticket, text(now), '0', known, tail)
      local refused = put(must_last(now, ends), 'HSET', WAITERS, owner, entry)
      if refused then
        return refused
      end
      local token
      token, value, used = join(owner, ttl, units, floor, tail, now, value, used)
      if not token then
        if type(before) == 'string' then
          pcall('HSET', WAITERS, owner, before)
        else
          pcall('HDEL', WAITERS, owner)
        end
        return value
      end
      -- The claims behind it may fit too, so the batch goes on after the caller.
      walk('', now, value, used)
      if before then
        wake_watcher(now)
      end
      return (wanted() and 'w' or 'j') .. token
    end
  else
    if moved then
      value, used = select(2, walk('', now, value, used))
    end
    if more then
      -- It may fit when all whose leases are over have been taken out.
      return more
    end
  end
  if value and string.byte(value, 33) ~= BAR then
    meet(now)
  end
  local state = 'h'
  if ticket ~= '' then
    local first = used and not wanted()
    local refused, sleep = enter(owner, ticket, known, tail, now, must_last(now), value)
    if refused then
      return refused
    end
    if first then
      tell_wanted()
    end
    state = sleep and 'z' .. sleep .. '|' or 'q'
  end
  return state .. time_left() .. '|' .. (value or '')
end

return {
  walk = walk,

  -- Takes K after the claim `ended`, if there is one. `drawn_in` is the number of the server's history, empty if the caller
  -- does not know it.
  acquire = function(claim, ended, now, drawn_in)
    known_history = drawn_in ~= '' and drawn_in or nil
    local value, used, moved, more = read_live(now)
    if failed(value) then
      return refusal(value, LOCK)
    end
    if ended and is_of(value, ended) then
      call('DEL', LOCK)
      value, moved = false, true
    elseif ended and holds(ended, used) then
      local refused
      value, used, refused = take_out_one(ended, value, used, now)
      if refused then
        return refusal(refused, QUEUE)
      end
      moved = true
    end
    if ended then
      leave(ended)
      local owner, _, tail, ticket, floor, mode = unpack(claim)
      if ticket ~= '' and wanted() and not is_of(value, owner) and not holds(owner, used) then
        -- It enters before K moves on, and behind all others.
        local known = terms(mode) and mode .. '|' .. floor or floor
        local refused = enter(owner, ticket, known, tail, now, must_last(now))
        if refused then
          return refused
        end
      end
    end
    return take_or_wait(claim, now, value, used, moved or ended, more)
  end,

  -- Takes a claim out, whatever it has: units of K, which may stay taken for a while, or a place.
  free = function(owner, keep, now)
    -- That of another lock, which the same script freed before.
    SUFFIX = ''
    local value, used = read_live(now)
    local freed, refused = holds(owner, used), nil
    if freed and keep > 0 then
      -- An owner never begins with so many zeros, so a repeat of this call finds nothing to free.
      local nobody, entry = string.rep('0', 16) .. string.sub(owner, 17), call('HGET', WAITERS, owner)
      local ends = math.floor(now / 1000) + keep
      refused = let_in(nobody, entry or '', ends, must_last(now, ends))
      if refused then
        refused = { err = string.sub(refused, 2) }
      else
        refused = leave(owner)
        if refused then
          put_back(nobody)
        else
          value, used = write_phase(used, value, used, now)
        end
      end
    elseif freed then
      value, used, refused = take_out_one(owner, value, used, now)
    else
      refused = leave(owner)
    end
    walk('', now, value, used)
    if keep > 0 or not freed then
      -- Its entry may end before the leases of the other claims, or it watched K.
      wake_watcher(now)
    end
    return refused and 'e' .. refused.err or freed and 1 or 0
  end,

  -- Raises a lease. Returns 1, 2 if somebody waits, or 0 if it is over, or the phase is not that of the token.
  renew = function(owner, ttl, token, now)
    local value, used, moved = read_live(now)
    if failed(value) then
      return mistyped(value) and 0 or 'e' .. value.err
    end
    if is_of(value, owner) then
      return raise_expiry(ttl) or 1
    end
    local held, refused = holds(owner, used) and is_within(token, value), nil
    if held then
      refused = raise(owner, ttl, now, value, used)
    end
    if moved then
      walk('', now, value, used)
    end
    return refused or held and (wanted() and 2 or 1) or 0
  end,

  -- Makes K, which the claim has for itself, a phase that begins with it. Returns what `renew` does. K is written last:
  -- until then, the claim has it for itself.
  downgrade = function(owner, ttl, mode, token, now)
    local value = read_lock()
    if failed(value) then
      return refusal(value, LOCK)
    end
    local refused = select(3, take_out('-inf', now))
    if refused then
      return refused == 's' and CLEARING or refused
    end
    -- Without the time since when it passes on: that begins anew behind the phase.
    local tail = string.match(value or '', '^[^|]*|[^|]*|(%d+|[^|]*|%d+|[^|]*|[^|]*)') or ''
    local units, left = terms(mode), math.max(call('PTTL', LOCK), tonumber(ttl))
    local ends = math.floor(now / 1000) + left
    refused = let_in(owner, pack_entry('', text(now), '0', mode .. '|0-0', tail), ends, must_last(now, ends))
    if refused then
      return refused
    end
    local used
    value = string.rep(' ', 32) .. '|' .. token .. '|' .. tail .. drawn_now()
    value, used, refused = write_phase(units, value, nil, now)
    if refused then
      put_back(owner)
      return refused
    end
    walk('', now, value, used)
    return wanted() and 2 or 1
  end,
}
