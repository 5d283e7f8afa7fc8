-- Frees the lock if it belongs to the claim, leaves the queue, and passes a free lock on.
--
-- KEYS     as in queue.lua
-- ARGV     of this step:
--          1 owner, 32 hexadecimal digits
--          and, if there is something to give back or to keep:
--          2 the last token of the reserved block that was used; 0 if nothing is to be given back
--          3 how long K stays taken, ms; 0 frees it now
--
-- Returns  1 if the claim held K, 0 if it did not, `e` and text if a command failed.
--
-- Atomic, because between reading the owner and deleting the key the lease may pass to another.
-- Writes that need memory only by pcall: a release must work when memory is full.

local function free(owner, used, keep)
  local value = read_lock()
  if failed(value) then
    return mistyped(value) and 0 or 'e' .. value.err
  end
  local waiting = call('EXISTS', QUEUE) == 1
  if waiting then
    leave(owner)
  end
  local freed = is_of(value, owner)
  if freed then
    give_back(value, used)
    if keep > 0 then
      -- Nobody owns a key whose owner is all zeros, so a repeat of this call finds nothing to free,
      -- yet people can still read who left it.
      local kept = pcall('SET', LOCK, string.rep('0', 32) .. string.sub(value, 33), 'PX', keep)
      if failed(kept) then
        call('PEXPIRE', LOCK, keep)
      end
      return 1
    end
    call('DEL', LOCK)
  end
  if waiting and (freed or not value) then
    move_on('', clock())
  end
  return freed and 1 or 0
end

STEPS.f = function(at)
  return free(A[at + 1], 0, 0)
end

STEPS.g = function(at)
  return free(A[at + 1], tonumber(A[at + 2]), tonumber(A[at + 3]))
end
