-- Grants a lock, to its caller or to the first that waits for it. Comes after `window.lua` and `tell.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because the token must be drawn at the instant the lock is taken, and because the next claim must not change between
-- freeing a lock and granting it.

-- Makes the functions of phase/, for locks that several claims share. As long as nobody shares K, that is not done, and costs
-- nothing.
local phases

-- Draws a token and takes K. Returns the token, or false and why not. The token first: if memory is full,
-- this is what is refused, and a token that serves no lock does no harm.
local function grant(owner, ttl, floor, tail, now)
  local token, refused = draw(floor, now)
  if token then
    refused = write_lock(owner, ttl, tail, now)
  end
  if refused then
    return false, refused
  end
  return token
end

-- Grants a free K to the first in the queue that can be reached. Returns 'caller' if that is the
-- caller, who is granted in the reply instead, 'granted' if K has a new owner, or false: then also behind how many in the queue
-- somebody may be who was not reached, if that is so.
--
-- A waiter gets K before it is told, because a message can be taken back by nobody: it must be true when it is heard. If nobody
-- hears it, K is freed again in the same step, and the next one is tried.
local function move_on(caller, now)
  local owners = pcall('ZRANGE', QUEUE, 0, WALK - 1)
  if failed(owners) then
    return false
  end
  for _, owner in ipairs(owners) do
    if owner == caller then
      return 'caller'
    end
    local entry = read_entry(owner, now)
    if entry and entry.units then
      -- The first that wants to share, and what an earlier phase left: from here on it is a walk of phase/.
      local ended = phases().walk(caller, now, false)
      return call('EXISTS', LOCK) == 1 and 'granted' or ended
    end
    if not entry or entry.gone then
      leave(owner)
    else
      local token, refused = grant(owner, entry.grant_ttl, entry.floor, entry.tail, now)
      if refused == 'c' then
        -- It knows of a token that can never be exceeded, and hears of it when it asks again.
        leave(owner)
      elseif not token then
        -- Memory is full, say. K stays free, and the queue as it is.
        return false, 0
      elseif not tell_granted(owner, entry, token) and entry.reach ~= '2' and not failed(pcall('DEL', LOCK)) then
        -- Nobody listens.
        pass_over(owner, entry)
      else
        leave(owner)
        wake_watcher(now)
        return 'granted'
      end
    end
  end
  return false, owners[WALK] and WALK
end

