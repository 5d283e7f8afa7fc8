-- Lets claims share a lock, and grants to those who wait for it. Comes after `write.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because who is next must not change before it is granted.

-- Lets a claim share K, of which the waiters know. Returns the token, K's value and the units in use, or false and why
-- not. K is written last: without it nothing is held.
local function join(owner, ttl, units, floor, tail, now, value, used)
  local token, drawn_in, first
  if value then
    token, drawn_in, first = select(2, phase_of(value))
    first = first ~= '' and first or token
  else
    -- A phase begins. Entries of an earlier phase would count as its holders.
    local refused = select(3, take_out('-inf', now))
    if refused then
      return false, refused
    end
    value, used = string.rep(' ', 32) .. '||' .. tail, 0
  end
  -- A token of a lost history may be newer than a phase that outlived it.
  if not token or drawn_in ~= '' and history() ~= '' and drawn_in ~= history() then
    local id, refused = draw(floor, now)
    if not id then
      return false, refused
    end
    token = id .. '-0'
    -- The tail has five fields. A foreign value with fewer fields is kept as a whole.
    local rest = string.match(value, '^[^|]*|[^|]*(|[^|]*|[^|]*|[^|]*|[^|]*|[^|]*)')
    value = string.sub(value, 1, 33) .. token .. (rest or string.match(value, '^[^|]*|[^|]*(.*)$')) .. drawn_now(first)
  end
  -- A waiter becomes a holder by a new score, and gets its place back if K cannot be written.
  local place = pcall('ZSCORE', QUEUE, owner)
  if failed(place) then
    return false, refusal(place, QUEUE)
  end
  local ends = math.floor(now / 1000) + tonumber(ttl)
  local refused = put(must_last(now, ends), 'ZADD', QUEUE, text(-ends), owner)
  if refused then
    return false, refused
  end
  local lasts = pcall('PEXPIRE', WAITERS, text(must_last(now)))
  if failed(lasts) then
    refused = refusal(lasts, WAITERS)
  else
    value, used, refused = write_phase(used + units, value, used, now)
  end
  if refused then
    return false, put_back(owner, place) and refused or HALFWAY
  end
  return token, value, used
end

-- Grants to waiters in order of arrival, as long as the next one fits: one exclusive claim, or a batch that
-- shares. Returns 'caller' if the caller is next and is granted in the reply instead, 'blocked' if the next claim does
-- not fit, 'more' if an earlier phase left too much for one script, or false; then K's value
-- and the units in use; and whether the queue has changed.
local function walk_on(caller, now, value, used)
  local more = not value and select(3, take_out('-inf', now))
  if more then
    return more == 's' and 'more', value, used, false
  end
  local owners = pcall('ZRANGE', QUEUE, 0, '+inf', 'BYSCORE', 'LIMIT', 0, WALK + 1, 'WITHSCORES')
  if failed(owners) then
    return false, value, used, false
  end
  local batch, other = false, false
  for at = 1, math.min(#owners, 2 * WALK), 2 do
    local owner = owners[at]
    local entry = read_entry(owner, now)
    if owner == caller then
      return 'caller', value, used, other
    elseif not entry or entry.gone then
      leave(owner)
      other = true
    else
      local units, limit, grant_ttl = entry.units, entry.limit, entry.grant_ttl
      if not fits(value, used, units, limit) then
        -- A claim may block the claims behind it only if its process can be reached. That is checked if the claim has missed a
        -- confirmation, or confirms before it is time.
        local since, reach = now - entry.confirmed, entry.reach
        if reach == '0' and (since > grant_ttl * 400 or since < 0) and not listens(entry.inbox, 'NUMSUB') then
          pass_over(owner, entry)
          reach, other = '1', true
        end
        if reach ~= '1' then
          return 'blocked', value, used, other
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
          return false, value, used, other
        else
          local heard, undone = tell_granted(owner, entry, token) or entry.reach == '2', nil
          if not heard and value then
            -- Nobody listens. It gets its place back, and K is as before.
            undone = not failed(pcall('ZADD', QUEUE, owners[at + 1], owner))
            if undone then
              value, used = write_phase(used, new_value, new_used, now)
            end
          elseif not heard then
            -- The same where K was free.
            undone = not failed(pcall('DEL', LOCK))
            if undone and units then
              pcall('ZADD', QUEUE, owners[at + 1], owner)
            end
          end
          -- A grant that could not be undone stays: its claim notices when it asks.
          if undone then
            pass_over(owner, entry)
          elseif units then
            value, used, batch, other = new_value, new_used, true, true
          else
            leave(owner)
            return 'blocked', read_lock(), nil, true
          end
        end
      end
    end
  end
  -- The rest of a batch is granted by the next move. The caller does not pass it.
  return batch and #owners > 2 * WALK and 'blocked', value, used, other
end

-- The same, and wakes those who watch K from now on.
local function walk(caller, now, value, used)
  local ended, other
  ended, value, used, other = walk_on(caller, now, value, used)
  if other then
    wake_watcher(now)
  end
  return ended, value, used
end
