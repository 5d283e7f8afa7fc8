-- Packs and unpacks the entry of a claim in the waiters of a lock. No function here calls the server.
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

-- Writes an entry, as ENTRY of layout.lua reads it, of a ticket; without one nobody is told of anything. `known` is the floor,
-- behind the mode and a bar if the claim shares.
local function pack_entry(ticket, confirmed, reach, known, tail)
  local stamp, grant_ttl, inbox = string.match(ticket, TICKET)
  return table.concat({ inbox or '', stamp or '0', confirmed, reach, grant_ttl or '0', known, tail }, '|')
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
  local units, limit = string.match(mode, SHARING)
  units, limit = tonumber(units), tonumber(limit)
  if mode ~= '' and not (units and units > 0 and units <= limit and limit <= MOST_UNITS) then
    return
  end
  return {
    inbox = inbox,
    stamp = stamp,
    confirmed = confirmed,
    -- Whether three confirmations are missing: its process is gone.
    gone = now - confirmed > grant_ttl * 1000,
    -- Whether it asks seldom.
    asleep = now - confirmed < 0,
    reach = reach,
    grant_ttl = grant_ttl,
    units = units,
    limit = limit,
    floor = floor,
    tail = tail,
    known = mode == '' and floor or mode .. '|' .. floor,
  }
end

