-- Frees one lock for release.lua and batch.lua, where a few commands do not do: somebody waits, the lock stays taken for a
-- while, or a command is refused. Comes after phase/.
--
-- KEYS     as in release.lua
--
-- Returns  the answer to one claim of release.lua.
--
-- Atomic, because release.lua is.

local function turn_to(lock, queue)
  LOCK, QUEUE = lock, queue
  -- Only a release that finds a queue needs it, so it travels with none.
  WAITERS = string.gsub(queue, 'queue$', 'waiters')
end

local function free(head, keep)
  local owner = string.sub(head, 1, 32)
  local value = read_lock()
  if failed(value) then
    return mistyped(value) and 0 or 'e' .. value.err
  end
  if phase_of(value) then
    return phases().free(owner, keep, time())
  end
  local waiting = call('EXISTS', QUEUE) == 1
  local place = waiting and pcall('ZRANK', QUEUE, owner)
  local refused = waiting and leave(owner)
  local freed = is_of(value, owner)
  if freed then
    if keep > 0 then
      -- A claim never has an owner of zeros, so a repeat of this call finds nothing to free.
      -- People can still read who left the key.
      local kept = pcall('SET', LOCK, string.rep('0', 32) .. string.sub(value, 33), 'PX', keep)
      if failed(kept) then
        call('PEXPIRE', LOCK, keep)
      end
      if waiting then
        -- That may be sooner than those who wait for the end of the lease know.
        wake_watcher(time())
      end
      return 1
    end
    call('DEL', LOCK)
  end
  if refused and not mistyped(refused) then
    -- No entry can be removed from the queue. So no waiter is granted the lock: it would stay first for ever.
    return freed and 1 or 'e' .. refused.err
  end
  -- A K that is free without this release is passed on too: the claim that would have done so is dead, or its answer was lost.
  if waiting and (freed or not value) then
    local now = time()
    local behind = 0
    if left_free(freed and value, now) == 0 then
      behind = select(2, move_on('', now))
    end
    if behind then
      call_next(now, behind)
    end
  elseif type(place) == 'number' and place < WATCHERS then
    wake_watcher(time())
  end
  return freed and 1 or 0
end

return turn_to, function(head, keep)
  local done, answer = guarded(free, head, keep)
  -- Before 7.0 what is raised is text.
  return done and answer or 'e' .. (type(answer) == 'table' and answer.err or answer)
end
