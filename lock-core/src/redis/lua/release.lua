-- Frees the lock if it belongs to the claim, leaves the queue, and passes a free lock on.
--
-- KEYS     as in queue.lua
-- ARGV[2]  owner, 32 hexadecimal digits
-- ARGV[3]  the last token of the reserved block that was used, 0 if that is not known
-- ARGV[4]  how long K stays taken, ms; 0 frees it now
--
-- Returns  1 if the claim held K, 0 if it did not.
--
-- Atomic, because between reading the owner and deleting the key the lease may pass to another.
-- Plain EVAL, and writes that need memory only by pcall: a release must work when memory is full.

local value = pcall('GET', LOCK)
if failed(value) then
  if mistyped(value) then
    return 0
  end
  return value
end
local waiting = call('EXISTS', QUEUE) == 1
if waiting then
  leave(ARGV[2])
end
local freed = is_of(value, ARGV[2])
if freed then
  give_back(value, tonumber(ARGV[3]))
  local keep = tonumber(ARGV[4])
  if keep > 0 then
    local left = call('PTTL', LOCK)
    if left >= 0 and left < keep then
      keep = math.max(left, 1)
    end
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
