-- Packs and unpacks what the waiters of a lock know of a claim. Nothing here asks the server.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because the step is.

-- Returns whether a member of the queue can be the owner of a claim.
local function is_owner(name)
  return #name == 32 and not string.find(name, '%X')
end

-- Reads a mode, `s units/limit`: returns both; nothing for that of a claim that wants K for itself.
local function terms(mode)
  local units, limit = string.match(mode, SHARING)
  return tonumber(units), tonumber(limit)
end

-- Writes an entry, as ENTRY of layout.lua reads it. `known` is the floor, behind the mode and a bar if the claim shares.
local function pack_entry(inbox, stamp, confirmed, reach, grant_ttl, known, tail)
  return table.concat({ inbox, stamp, confirmed, reach, grant_ttl, known, tail }, '|')
end

-- Writes the entry of a claim that asks just now. Without a ticket it waits for nothing, and nobody is told.
local function pack_ticket(ticket, reach, known, tail, now)
  local stamp, grant_ttl, inbox = string.match(ticket, TICKET)
  return pack_entry(inbox or '', stamp or '0', text(now), reach, grant_ttl or '0', known, tail)
end

-- Reads an entry. Returns nothing if it cannot be one: no claim has such a name, it is longer than any, its lease or its time
-- cannot be, or its units cannot.
local function unpack_entry(owner, text, now)
  if not is_owner(owner) or type(text) ~= 'string' or #text > LONGEST_ENTRY then
    return
  end
  local inbox, stamp, confirmed, reach, grant_ttl, mode, floor, tail = string.match(text, ENTRY)
  if not inbox or tonumber(grant_ttl) > HOUR or tonumber(confirmed) > now + HOUR * 1000 then
    return
  end
  local units, limit = terms(mode)
  if mode ~= '' and not (units and units > 0 and units <= limit and limit <= MOST_UNITS) then
    return
  end
  return {
    inbox = inbox,
    stamp = stamp,
    confirmed = confirmed,
    -- Whether three confirmations are missing: its process is gone.
    gone = now - confirmed > grant_ttl * 1000,
    reach = reach,
    grant_ttl = grant_ttl,
    units = units,
    limit = limit,
    floor = floor,
    tail = tail,
    known = mode == '' and floor or mode .. '|' .. floor,
  }
end

