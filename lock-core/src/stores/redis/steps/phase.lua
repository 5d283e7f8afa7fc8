-- Locks that several claims share. Comes after `queue.lua`, and costs nothing until somebody shares.
--
-- While claims share K it is in a phase: a string `shared` and 26 digits, the units in use, then
-- `|token|ttl|host|pid|site|lock name` of whoever began it. The token is `ms-seq-number`, and every holder has the
-- same; then `-history`, a number for the history of this server when it was drawn; then `-ms-seq-number`, if a phase
-- outlived a failover: the token of before, which those who were in it keep. Holders stand in the queue of K with a
-- negative score: their leases end at that many ms of server time.
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
  -- there were, the units that are known of them, and what was refused, if anything; `s` if there are more than one script
  -- may take out: whoever asks again takes out the next.
  local function take_out(least, now)
    local ended, units = 0, 0
    for _ = 1, MOST / 128 do
      local gone = pcall('ZRANGE', QUEUE, least, '(0', 'BYSCORE', 'LIMIT', 0, 128)
      if failed(gone) then
        return ended, units, refusal(gone, QUEUE)
      elseif #gone == 0 then
        return ended, units
      end
      local entries = pcall('HMGET', WAITERS, unpack(gone))
      local left = pcall('ZREM', QUEUE, unpack(gone))
      if failed(left) then
        return ended, units, refusal(left, QUEUE)
      end
      pcall('HDEL', WAITERS, unpack(gone))
      for at, owner in ipairs(gone) do
        local entry = read_entry_of(owner, entries[at], now)
        ended, units = ended + 1, units + (entry and entry.units or 0)
      end
      if #gone < 128 then
        return ended, units
      end
    end
    return ended, units, 's'
  end

  -- Returns when the last lease of the phase ends, server ms; or nothing, and why that is not known, or nobody shares K.
  -- Takes out who cannot share it: no claim has such a name, or such a lease.
  local function phase_end(now)
    local now_ms, ends = math.floor(now / 1000), nil
    for _ = 1, 64 do
      local first = pcall('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
      if failed(first) then
        return nil, refusal(first, QUEUE)
      end
      local owner, score = unpack(first)
      ends = -(tonumber(score) or 0)
      if ends <= 0 then
        return
      end
      if is_owner(owner) and ends <= EXACT and (ends - now_ms <= DAY / 1000 or units_of(owner, now)) then
        return ends
      end
      if leave(owner) then
        break
      end
    end
    return math.min(ends, now_ms + DAY / 1000)
  end

  -- Counts what those have whose leases run. Returns the units, at least one each, and whether all are known.
  local function count(now)
    local owners = pcall('ZRANGE', QUEUE, '-inf', text(-math.floor(now / 1000) - 1), 'BYSCORE', 'LIMIT', 0, COUNTED)
    local sum, certain = 0, not failed(owners) and #owners < COUNTED
    for first = 1, failed(owners) and 0 or #owners, 128 do
      local some = { unpack(owners, first, math.min(first + 127, #owners)) }
      local entries = pcall('HMGET', WAITERS, unpack(some))
      for at, owner in ipairs(some) do
        local entry = read_entry_of(owner, entries[at], now)
        local units = entry and entry.units
        sum, certain = sum + (units or 1), certain and units
      end
    end
    return sum, certain
  end

  -- How long queue and waiters are kept, so that they outlive every lease, ms.
  local function kept(now, ends)
    local last, unknown = phase_end(now)
    local left = math.max(last or 0, ends or 0) - math.floor(now / 1000)
    return (unknown and DAY / 1000 or math.max(0, left)) + QUEUE_KEPT
  end

  -- Writes K, which ends with the last lease. Returns its value and the units in use; false if the phase is over; or both
  -- as they were, and what was refused.
  local function write(units, value, used, now)
    local ends, unknown = phase_end(now)
    if unknown then
      return value, used, unknown
    end
    local new = string.format('shared%026d', units) .. string.sub(value, 33)
    local set = ends and pcall('SET', LOCK, new, 'PXAT', text(ends)) or pcall('DEL', LOCK)
    if failed(set) then
      return value, used, refusal(set, LOCK)
    elseif ends then
      return new, units
    end
    return false
  end

  -- What tells this history of the server from others, as a number. Empty if that may not be known.
  local known_history
  local function history()
    if not known_history then
      local replication = pcall('INFO', 'replication')
      local id = string.match(failed(replication) and '' or replication, 'master_replid:(%x%x%x%x%x%x)')
      known_history = id and text(tonumber(id, 16)) or ''
    end
    return known_history
  end

  -- Returns whether a holder with this token came into this phase, and not into one that a failover lost.
  local function is_within(token, value)
    local _, latest, _, first = phase_of(value)
    local function numbers_of(id)
      local ms, seq, number = string.match(id, '^(%d+)-(%d+)-(%d+)$')
      return ms and { tonumber(ms), tonumber(seq), tonumber(number) }
    end
    local function is_after(one, other)
      for at = 1, 3 do
        if one[at] ~= other[at] then
          return one[at] > other[at]
        end
      end
    end
    local mine, last = numbers_of(token or ''), numbers_of(latest)
    return not mine or not is_after(mine, last) and not is_after(numbers_of(first) or last, mine)
  end

  local function wanted()
    local last = pcall('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')
    return failed(last) or (tonumber(last[2]) or 0) > 0
  end

  local function tell_wanted()
    local owners = pcall('ZRANGE', QUEUE, '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 64)
    for _, owner in ipairs(failed(owners) and {} or owners) do
      local entry = pcall('HGET', WAITERS, owner)
      local inbox = string.match(type(entry) == 'string' and entry or '', '^([^|]+)|')
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
    value, used = write(used, value, used, now)
    return value, used
  end

  -- Takes a holder out of the phase. Returns K's value, the units in use, and what was refused, if anything.
  local function take_out_one(owner, value, used, now)
    local units, refused = units_of(owner, now), leave(owner)
    if refused then
      return value, used, refused
    end
    return give_back(units, true, value, used, now)
  end

  -- Gives a claim the place that it had before, if any. Returns whether it holds nothing then.
  local function put_back(owner, place)
    if place then
      return not failed(pcall('ZADD', QUEUE, place, owner))
    end
    pcall('HDEL', WAITERS, owner)
    -- It was let in by a ZADD.
    return not failed(pcall('ZREM', QUEUE, owner)) or not failed(pcall('ZADD', QUEUE, 0, owner))
  end

  -- Notes a holder of units that K counts already, or does not count yet. Returns why it could not, if so.
  local function let_in(owner, entry, ends, now)
    local refused = put(kept(now, ends), 'HSET', WAITERS, owner, entry)
    if not refused then
      refused = put(kept(now, ends), 'ZADD', QUEUE, text(-ends), owner)
      if refused then
        pcall('HDEL', WAITERS, owner)
      end
    end
    return refused
  end


  -- Reads K without the holders whose lease is over. Returns its value, the units in use if it is a phase, and
  -- whether there were any: then the queue must move on, whatever else is done; and why some are still there, if so.
  local function look(now)
    local value = read_lock()
    if failed(value) then
      return value
    end
    local used = phase_of(value)
    if not used then
      return value
    end
    local ended, units, refused = take_out(text(-math.floor(now / 1000)), now)
    ended = ended > 0
    if ended then
      -- One whose lease is over may never have been counted.
      value, used = give_back(units, false, value, used, now)
    elseif not refused and call('PTTL', LOCK) < 0 then
      local ends, unknown = phase_end(now)
      if not ends and not unknown then
        call('DEL', LOCK)
        value, used, ended = false, nil, true
      end
    end
    return value, used, ended, refused
  end

  -- Lets a claim share K, of which the waiters know. Returns the token, K's value and the units in use, or false and why
  -- not. K is written last: without it nothing is held.
  local function join(owner, ttl, units, floor, tail, now, value, used)
    local token, drawn_in, first
    if value then
      token, drawn_in, first = select(2, phase_of(value))
      first = first ~= '' and first or token
    else
      local refused = select(3, take_out('-inf', now))
      if refused then
        return false, refused
      end
      value, used = string.rep(' ', 32) .. '||' .. tail, 0
    end
    -- What was given of a history that is lost may be newer than a phase that outlived it.
    if not token or drawn_in ~= '' and history() ~= '' and drawn_in ~= history() then
      local id, refused = draw(floor, now)
      if not id then
        return false, refused
      end
      token = id .. '-0'
      local field = token .. (history() ~= '' and '-' .. history() or '') .. (first and '-' .. first or '')
      value = string.sub(value, 1, 33) .. field .. string.match(value, '^[^|]*|[^|]*(.*)$')
    end
    local place = pcall('ZSCORE', QUEUE, owner)
    if failed(place) then
      return false, refusal(place, QUEUE)
    end
    local ends = math.floor(now / 1000) + tonumber(ttl)
    local refused = put(kept(now, ends), 'ZADD', QUEUE, text(-ends), owner)
    if refused then
      return false, refused
    end
    local lasts = pcall('PEXPIRE', WAITERS, text(kept(now)))
    if failed(lasts) then
      refused = refusal(lasts, WAITERS)
    else
      value, used, refused = write(used + units, value, used, now)
    end
    if refused then
      return false, put_back(owner, place) and refused or HALFWAY
    end
    return token, value, used
  end

  -- Grants to those who wait, in order of arrival, for as long as the next one fits: one for itself, or a batch that
  -- shares. Returns 'caller' if the caller is next, who is granted in the reply instead, 'blocked' if somebody is
  -- for whom K is not free, 'more' if what is left of an earlier phase is too much for one script, or false; then K's value
  -- and the units in use.
  local function walk(caller, now, value, used)
    local more = not value and select(3, take_out('-inf', now))
    if more then
      return more == 's' and 'more', value, used
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
          else
            local message = table.concat({ owner, token, grant_ttl, entry.stamp, LOCK }, '|')
            local heard, undone = tell(entry.inbox, message) or entry.reach == '2', nil
            if not heard and value then
              -- Nobody listens.
              undone = not failed(pcall('ZADD', QUEUE, owners[at + 1], owner))
              if undone then
                value, used = write(used, new_value, new_used, now)
              end
            elseif not heard then
              undone = not failed(pcall('DEL', LOCK))
              if undone and units then
                pcall('ZADD', QUEUE, owners[at + 1], owner)
              end
            end
            if undone then
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
    end
    -- What remains of a batch is the next move's work, and is not passed by whoever asks now.
    return batch and #owners > 2 * WALK and 'blocked', value, used
  end

  -- Raises the lease of a holder, and K and what else must outlive it. Returns why it could not, if so.
  local function raise(owner, ttl, now, value, used)
    local ends = math.floor(now / 1000) + tonumber(ttl)
    local before, left = -tonumber(call('ZSCORE', QUEUE, owner)), call('PTTL', LOCK)
    if before >= ends and before <= EXACT and left >= tonumber(ttl) then
      return
    end
    if before < ends or before > EXACT then
      local refused = put(kept(now, ends), 'ZADD', QUEUE, text(-ends), owner)
      if refused then
        return refused
      end
    end
    local lasts = pcall('PEXPIRE', WAITERS, text(kept(now)))
    if failed(lasts) then
      return refusal(lasts, WAITERS)
    end
    return (select(3, write(used, value, used, now)))
  end

  local function holds(owner, used)
    return used and tonumber(call('ZSCORE', QUEUE, owner) or 0) < 0
  end

  -- Takes K, alone or beside others, confirms it, or queues the claim. Returns what acquire.lua does.
  local function take(claim, now, value, used, moved, more)
    local owner, ttl, tail, ticket, floor, mode = unpack(claim)
    local units, limit = terms(mode)
    local known = units and mode .. '|' .. floor or floor
    if is_of(value, owner) then
      local token, refused = draw(floor, now)
      refused = not token and refused or raise_expiry(ttl)
      leave(owner)
      return refused or 'g' .. token
    end
    if units and holds(owner, used) then
      local refused = raise(owner, ttl, now, value, used)
      if moved then
        walk('', now, value, used)
      end
      return refused or (wanted() and 'w' or 'j') .. select(2, phase_of(value))
    end
    if fits(value, used, units, limit) then
      local ended
      ended, value, used = walk(owner, now, value, used)
      if ended == 'more' then
        return 's'
      elseif ended ~= 'blocked' and fits(value, used, units, limit) then
        if not units then
          local token, refused = grant(owner, ttl, floor, tail, now)
          if token then
            leave(owner)
          end
          return token and 'g' .. token or refused
        end
        local stamp, grant_ttl, inbox = string.match(ticket, '^(%d+)|(%d+)|(.*)$')
        local entry = { inbox or '', stamp or '0', text(now), '0', grant_ttl or '0', known, tail }
        local ends, before = math.floor(now / 1000) + tonumber(ttl), pcall('HGET', WAITERS, owner)
        local refused = put(kept(now, ends), 'HSET', WAITERS, owner, table.concat(entry, '|'))
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
        -- Those behind it may fit too: the batch does not end with the one that asked.
        walk('', now, value, used)
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
    if value and string.byte(value, 33) ~= 124 then
      meet(now)
    end
    local state = 'h'
    if ticket ~= '' then
      local first = used and not wanted()
      local refused = enter(owner, ticket, known, tail, now, kept(now))
      if refused then
        return refused
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
      local value, used, moved, more = look(now)
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
          local refused = enter(owner, ticket, known, tail, now, kept(now))
          if refused then
            return refused
          end
        end
      end
      return take(claim, now, value, used, moved or ended, more)
    end,

    -- Takes a claim out, whatever it has: units of K, which may stay taken for a while, or a place.
    free = function(owner, keep, now)
      -- That of another lock, which the same script freed before.
      PASSING = ''
      local value, used = look(now)
      local freed, refused = holds(owner, used), nil
      if freed and keep > 0 then
        -- Nobody owns what begins with so many zeros, so a repeat of this call finds nothing to free.
        local nobody, entry = string.rep('0', 16) .. string.sub(owner, 17), call('HGET', WAITERS, owner)
        local ends = math.floor(now / 1000) + keep
        refused = let_in(nobody, entry or '', ends, now)
        if refused then
          refused = { err = string.sub(refused, 2) }
        else
          refused = leave(owner)
          if refused then
            put_back(nobody)
          else
            value, used = write(used, value, used, now)
          end
        end
      elseif freed then
        value, used, refused = take_out_one(owner, value, used, now)
      else
        refused = leave(owner)
      end
      walk('', now, value, used)
      return refused and 'e' .. refused.err or freed and 1 or 0
    end,

    -- Raises a lease. Returns 1, 2 if somebody waits, or 0 if it is over, or the phase is not that of the token.
    renew = function(owner, ttl, token, now)
      local value, used, moved = look(now)
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
      local entry = table.concat({ '', '0', text(now), '0', '0', mode .. '|0-0', tail }, '|')
      refused = let_in(owner, entry, ends, now)
      if refused then
        return refused
      end
      local field, used = token .. (history() ~= '' and '-' .. history() or ''), nil
      value, used, refused = write(units, string.rep(' ', 32) .. '|' .. field .. '|' .. tail, nil, now)
      if refused then
        put_back(owner)
        return refused
      end
      walk('', now, value, used)
      return wanted() and 2 or 1
    end,
  }
end
