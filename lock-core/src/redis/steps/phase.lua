-- Locks that several claims share. Comes after `queue.lua`, and costs nothing until somebody shares.
--
-- While claims share K it is in a phase: a string `shared` and 26 digits, the units in use, then
-- `|token|ttl|host|pid|site|lock name` of whoever began it. The token is `ms-seq-number`, and every holder has the
-- same. Holders stand in the queue of K with a negative score: their leases end at that many ms of server time.
-- A waiter becomes a holder by a new score. Of claims that share, the waiters of K know
-- `inbox|stamp|confirmed|reach|grant_ttl|s units/limit|floor|ttl|host|pid|site|lock name`.
--
-- A claim shares K as long as K is a phase and its own lease lies ahead. Without K the phase is over: whoever
-- grants next takes out of the queue what is left. A phase is over only when nobody shares it, whatever K counts.
--
-- No window of `queue.lua` opens while K is in a phase or passes on from one, and one that is open ends with it.
--
-- Absolute times, because a script reads the time and Redis counts a PX from different moments: K must not end
-- before a lease.
--
-- KEYS     as in queue.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because units and leases must agree, and because who is next must not change before it is granted.

phases = function()
  -- Units and limit of a mode, `s units/limit`; nothing for a claim that wants K for itself.
  local function terms(mode)
    local units, limit = string.match(mode, '^s(%d+)/(%d+)$')
    return tonumber(units), tonumber(limit)
  end

  -- How many leases are looked at when units are counted.
  local COUNTED = 1000

  local function fits(value, used, units, limit)
    used = value and used or not value and 0
    return not units and not value or units and used and used + units <= limit
  end

  -- Returns the units of a claim, or nothing if they cannot be read.
  local function units_of(owner, now)
    local entry = read_entry(owner, now)
    return entry and entry.units
  end

  -- Takes out the holders whose score lies from `least` up to 0: those whose lease is over, or all. Returns how many
  -- there were, and the units that are known of them.
  local function take_out(least, now)
    local ended, units = 0, 0
    while true do
      local gone = pcall('ZRANGE', QUEUE, least, '(0', 'BYSCORE', 'LIMIT', 0, 64)
      if failed(gone) or #gone == 0 then
        return ended, units
      end
      for _, owner in ipairs(gone) do
        ended, units = ended + 1, units + (units_of(owner, now) or 0)
        leave(owner)
      end
    end
  end

  -- Returns when the last lease of the phase ends, server ms, or nothing if nobody shares K. Takes out who cannot share
  -- it: no claim has such a name, or such a lease.
  local function phase_end(now)
    local now_ms, ends = math.floor(now / 1000), nil
    for _ = 1, 64 do
      local owner, score = unpack(call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES'))
      ends = -(tonumber(score) or 0)
      if ends <= 0 then
        return
      end
      if is_owner(owner) and ends <= EXACT and (ends - now_ms <= DAY / 1000 or units_of(owner, now)) then
        return ends
      end
      leave(owner)
    end
    return math.min(ends, now_ms + DAY / 1000)
  end

  -- Counts what those have whose leases run. Returns the units, at least one each, and whether all are known.
  local function count(now)
    local owners = call('ZRANGE', QUEUE, '-inf', text(-math.floor(now / 1000) - 1), 'BYSCORE', 'LIMIT', 0, COUNTED)
    local sum, certain = 0, #owners < COUNTED
    for _, owner in ipairs(owners) do
      local units = units_of(owner, now)
      sum, certain = sum + (units or 1), certain and units
    end
    return sum, certain
  end

  -- Writes K. Returns its value, or false if the phase is over, and what was refused.
  local function write(used, value, now)
    local ends = phase_end(now)
    if not ends then
      call('DEL', LOCK)
      return false
    end
    value = string.format('shared%026d', used) .. string.sub(value, 33)
    local set = pcall('SET', LOCK, value, 'PXAT', text(ends))
    return value, failed(set) and refusal(set, LOCK)
  end

  -- Queue and waiters outlive the longest lease.
  local function outlive(now)
    local left = (phase_end(now) or 0) - math.floor(now / 1000)
    for _, key in ipairs({ QUEUE, WAITERS }) do
      if call('PTTL', key) < left + 1000 then
        call('PEXPIRE', key, text(math.max(left, 0) + QUEUE_KEPT))
      end
    end
  end

  local function wanted()
    return (tonumber(call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')[2]) or 0) > 0
  end

  local function tell_wanted()
    for _, owner in ipairs(call('ZRANGE', QUEUE, '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 64)) do
      local inbox = string.match(call('HGET', WAITERS, owner) or '', '^([^|]+)|')
      if inbox and not tell_in_slot(inbox, 'w|' .. owner .. '|' .. LOCK) then
        pcall('PUBLISH', inbox, 'w|' .. owner .. '|' .. LOCK)
      end
    end
  end

  -- Takes units out of the phase. If that may not be all, or K would be free, counts those that stay. Returns K's value
  -- and the units in use, or false if nobody shares it any more.
  local function give_back(units, certain, value, used, now)
    used = used - (units or 0)
    if not units or not certain or used <= 0 then
      local sum, all = count(now)
      used = all and sum or math.max(used, sum)
    end
    value = write(used, value, now)
    return value, value and used
  end

  -- Reads K without the holders whose lease is over. Returns its value, the units in use if it is a phase, and
  -- whether there were any: then the queue must move on, whatever else is done.
  local function look(now)
    local value = read_lock()
    if failed(value) then
      return value
    end
    local used = phase_of(value)
    if not used then
      return value
    end
    local ended, units = take_out(text(-math.floor(now / 1000)), now)
    ended = ended > 0
    if ended then
      -- One whose lease is over may never have been counted.
      value, used = give_back(units, false, value, used, now)
    elseif not phase_end(now) and call('PTTL', LOCK) < 0 then
      call('DEL', LOCK)
      value, used, ended = false, nil, true
    end
    return value, used, ended
  end

  -- Lets a claim share K. Returns the token, K's value and the units in use, or false and why not.
  local function join(owner, ttl, units, floor, tail, now, value, used)
    local token
    if value then
      token = select(2, phase_of(value))
    else
      take_out('-inf', now)
      local id, refused = draw(floor, now)
      if not id then
        return false, refused
      end
      token = id .. '-0'
      value, used = string.rep(' ', 32) .. '|' .. token .. '|' .. tail, 0
    end
    local place = pcall('ZSCORE', QUEUE, owner)
    if failed(place) then
      return false, refusal(place, QUEUE)
    end
    call('ZADD', QUEUE, text(-(math.floor(now / 1000) + tonumber(ttl))), owner)
    local refused
    value, refused = write(used + units, value, now)
    if refused then
      if place then
        call('ZADD', QUEUE, place, owner)
      else
        call('ZREM', QUEUE, owner)
      end
      return false, refused
    end
    outlive(now)
    return token, value, used + units
  end

  -- Grants to those who wait, in order of arrival, for as long as the next one fits: one for itself, or a batch that
  -- shares. Returns 'caller' if the caller is next, who is granted in the reply instead, 'blocked' if somebody is
  -- for whom K is not free, or false; then K's value and the units in use.
  local function walk(caller, now, value, used)
    if not value then
      take_out('-inf', now)
    end
    local owners = pcall('ZRANGE', QUEUE, 0, '+inf', 'BYSCORE', 'LIMIT', 0, WALK + 1, 'WITHSCORES')
    if failed(owners) then
      return false, value, used
    end
    local batch = false
    for at = 1, math.min(#owners, 2 * WALK), 2 do
      local owner = owners[at]
      local entry = read_entry(owner, now)
      if owner == caller then
        return 'caller', value, used
      elseif not entry or entry.gone then
        leave(owner)
      else
        local units, limit, grant_ttl = entry.units, entry.limit, entry.grant_ttl
        if not fits(value, used, units, limit) then
          -- Only who can be told may make others wait. Whoever has missed a confirmation is looked for, and whoever
          -- confirms before it is time.
          local since, reach = now - entry.confirmed, entry.reach
          if reach == '0' and (since > grant_ttl * 400 or since < 0) and not listens(entry.inbox, 'NUMSUB') then
            pass_over(owner, entry)
            reach = '1'
          end
          if reach ~= '1' then
            return 'blocked', value, used
          end
        else
          local token, new_value, new_used
          if units then
            token, new_value, new_used = join(owner, grant_ttl, units, entry.floor, entry.tail, now, value, used)
          else
            token, new_value = grant(owner, grant_ttl, entry.floor, entry.tail, now)
          end
          if not token and new_value == 'c' then
            -- It knows of a token that can never be exceeded, and hears of it when it asks again.
            leave(owner)
          elseif not token then
            -- Memory is full, say. K stays as it is, and so does the queue.
            return false, value, used
          elseif
            not tell(entry.inbox, table.concat({ owner, token, grant_ttl, entry.stamp, LOCK }, '|'))
            and entry.reach ~= '2'
          then
            -- Nobody listens.
            call('ZADD', QUEUE, owners[at + 1], owner)
            if value then
              value = write(used, value, now)
            else
              call('DEL', LOCK)
            end
            pass_over(owner, entry)
          elseif units then
            value, used, batch = new_value, new_used, true
          else
            leave(owner)
            return 'blocked', read_lock(), nil
          end
        end
      end
    end
    -- What remains of a batch is the next move's work, and is not passed by whoever asks now.
    return batch and #owners > 2 * WALK and 'blocked', value, used
  end

  -- Raises the lease of a holder.
  local function raise(owner, ttl, now, value, used)
    local ends = math.floor(now / 1000) + tonumber(ttl)
    if -tonumber(call('ZSCORE', QUEUE, owner)) < ends then
      call('ZADD', QUEUE, text(-ends), owner)
      write(used, value, now)
    end
    outlive(now)
  end

  local function holds(owner, used)
    return used and (tonumber(call('ZSCORE', QUEUE, owner) or 0)) < 0
  end

  -- Takes K, alone or beside others, confirms it, or queues the claim. Returns what acquire.lua does.
  local function take(claim, now, value, used, moved)
    local owner, ttl, tail, ticket, floor, mode = unpack(claim)
    local units, limit = terms(mode)
    local known = units and mode .. '|' .. floor or floor
    if is_of(value, owner) then
      raise_expiry(ttl)
      leave(owner)
      local token, refused = draw(floor, now)
      return token and 'g' .. token or refused
    end
    if units and holds(owner, used) then
      raise(owner, ttl, now, value, used)
      if moved then
        walk('', now, value, used)
      end
      return (wanted() and 'w' or 'j') .. select(2, phase_of(value))
    end
    if fits(value, used, units, limit) then
      local ended
      ended, value, used = walk(owner, now, value, used)
      if ended ~= 'blocked' and fits(value, used, units, limit) then
        if not units then
          leave(owner)
          local token, refused = grant(owner, ttl, floor, tail, now)
          return token and 'g' .. token or refused
        end
        local stamp, grant_ttl, inbox = string.match(ticket, '^(%d+)|(%d+)|(.*)$')
        local entry = { inbox or '', stamp or '0', text(now), '0', grant_ttl or '0', known, tail }
        -- Before K: if memory is full, this is what is refused.
        local set = pcall('HSET', WAITERS, owner, table.concat(entry, '|'))
        if failed(set) then
          return refusal(set, WAITERS)
        end
        local token
        token, value, used = join(owner, ttl, units, floor, tail, now, value, used)
        if not token then
          pcall('HDEL', WAITERS, owner)
          return value
        end
        -- Those behind it may fit too: the batch does not end with the one that asked.
        walk('', now, value, used)
        return (wanted() and 'w' or 'j') .. token
      end
    elseif moved then
      value, used = select(2, walk('', now, value, used))
    end
    if value and string.byte(value, 33) ~= 124 then
      meet(now)
    end
    local state = 'h'
    if ticket ~= '' then
      local first = used and not wanted()
      local refused = enter(owner, ticket, known, tail, now)
      if refused then
        return refused
      end
      if used then
        outlive(now)
      end
      if first then
        tell_wanted()
      end
      state = 'q'
    end
    return state .. time_left() .. '|' .. (value or '')
  end

  return {
    walk = walk,

    -- Takes K after the claim `ended`, if there is one.
    take = function(claim, ended, now)
      local value, used, moved = look(now)
      if failed(value) then
        return refusal(value, LOCK)
      end
      if ended and is_of(value, ended) then
        call('DEL', LOCK)
        value, moved = false, true
      elseif ended and holds(ended, used) then
        local units = units_of(ended, now)
        leave(ended)
        value, used = give_back(units, true, value, used, now)
        moved = true
      end
      if ended then
        leave(ended)
        local owner, _, tail, ticket, floor, mode = unpack(claim)
        if ticket ~= '' and wanted() and not is_of(value, owner) and not holds(owner, used) then
          -- It enters before K moves on, and behind all others.
          local known = terms(mode) and mode .. '|' .. floor or floor
          local refused = enter(owner, ticket, known, tail, now)
          if refused then
            return refused
          end
        end
        if used then
          outlive(now)
        end
      end
      return take(claim, now, value, used, moved or ended)
    end,

    -- Takes a claim out, whatever it has: units of K, which may stay taken for a while, or a place.
    free = function(owner, keep, now)
      -- That of another lock, which the same script freed before.
      PASSING = ''
      local value, used = look(now)
      local freed = holds(owner, used)
      if freed and keep > 0 then
        -- Nobody owns what begins with so many zeros, so a repeat of this call finds nothing to free.
        local kept, entry = string.rep('0', 16) .. string.sub(owner, 17), call('HGET', WAITERS, owner)
        call('ZADD', QUEUE, text(-(math.floor(now / 1000) + keep)), kept)
        call('HSET', WAITERS, kept, entry or '')
        leave(owner)
        value = write(used, value, now)
        outlive(now)
      elseif freed then
        local units = units_of(owner, now)
        leave(owner)
        value, used = give_back(units, true, value, used, now)
      else
        leave(owner)
      end
      walk('', now, value, used)
      return freed and 1 or 0
    end,

    -- Raises a lease. Returns 1, 2 if somebody waits, or 0 if it is over.
    renew = function(owner, ttl, now)
      local value, used, moved = look(now)
      if failed(value) then
        return mistyped(value) and 0 or 'e' .. value.err
      end
      if is_of(value, owner) then
        raise_expiry(ttl)
        return 1
      end
      local held = holds(owner, used)
      if held then
        raise(owner, ttl, now, value, used)
      end
      if moved then
        walk('', now, value, used)
      end
      return held and (wanted() and 2 or 1) or 0
    end,

    -- Makes K, which the claim has for itself, a phase that begins with it. Returns what `renew` does.
    downgrade = function(owner, ttl, mode, token, now)
      local value = read_lock()
      if failed(value) then
        return refusal(value, LOCK)
      end
      -- Without the time since when it passes on: that begins anew behind the phase.
      local tail = string.match(value or '', '^[^|]*|[^|]*|(%d+|[^|]*|%d+|[^|]*|[^|]*)') or ''
      local units, left = terms(mode), math.max(call('PTTL', LOCK), tonumber(ttl))
      take_out('-inf', now)
      call('ZADD', QUEUE, text(-(math.floor(now / 1000) + left)), owner)
      local refused
      value, refused = write(units, string.rep(' ', 32) .. '|' .. token .. '|' .. tail, now)
      if refused then
        call('ZREM', QUEUE, owner)
        return refused
      end
      call('HSET', WAITERS, owner, table.concat({ '', '0', text(now), '0', '0', mode .. '|0-0', tail }, '|'))
      outlive(now)
      walk('', now, value, units)
      return wanted() and 2 or 1
    end,
  }
end

