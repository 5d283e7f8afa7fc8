-- Frees locks that belong to their claims, leaves their queues, and passes on the locks that are then free.
-- Comes after `pass.lua` and the function `library`, which defines everything else in the files before it.
--
-- KEYS       the locks; then their queues, in the same order; then the clock
-- ARGV[1]    how long they stay taken, ms; 0 frees them now
-- ARGV[2]    the owners of the claims, each in 32 hexadecimal digits and the '|' that follows them in the value;
--            one word, because a word for each costs the server as much as what is done with it
-- ARGV[2+i]  the units of the i-th claim, 0 for the whole lock; not there if no claim shares
--
-- Returns  1 if all held their locks and nobody waits for them; else a list with the answer to each claim: 1 if it
--          held its lock, 0 if it did not, `e` and text if a command failed.
--
-- Atomic per lock, because the lease may pass to another claim between reading the owner and deleting the
-- key; one script for all of them, because that costs the server a third. A failure of one lock does not
-- affect the others. Writes that need memory go by pcall: a release must work when memory is full.

local pcall, sub = redis.pcall, string.sub
local count, keep, heads = (#KEYS - 1) / 2, tonumber(ARGV[1]), ARGV[2]
local shared = ARGV[3]

-- Nearly always all are held and nobody waits for any. Then three commands do what `free` of free.lua would do with each. If
-- one of them is not as it should be, nothing was done, and each lock is looked at by itself.
if keep == 0 and not shared and pcall('EXISTS', unpack(KEYS, count + 1, 2 * count)) == 0 then
  local values = pcall('MGET', unpack(KEYS, 1, count))
  for i = 1, count do
    local value = values[i]
    values[i] = value and sub(value, 1, 33) or ''
  end
  if table.concat(values) == heads and type(pcall('DEL', unpack(KEYS, 1, count))) == 'number' then
    return 1
  end
end

-- Takes a claim out of the phase that it shares, if nobody waits and no lease is over. Otherwise returns false. It is a copy of
-- what `free` of phase/steps.lua does then, and writes the same: what it cannot do, or is refused, is left to that.
local function leave_phase(lock, queue, owner, units)
  local value, last = pcall('GETRANGE', lock, 0, LONGEST_VALUE), pcall('ZRANGE', queue, -2, -1, 'WITHSCORES')
  if value.err or string.byte(value, 33) ~= BAR or sub(value, 1, 6) ~= 'shared' or not last[2] then
    return false
  end
  local used = tonumber(string.match(value, PHASE_TO_LEAVE))
  -- If the number does not match the holders, phase/ counts.
  if not used or used < units or (used == units) == (last[4] ~= nil) then
    return false
  end
  used = used - units
  local first = used > 0 and pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
  if first and not first[2] then
    return false
  end
  local longest = first and -(first[1] == owner and first[4] or first[2]) or 0
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- A waiter's score is positive. The last of the holders is the one whose lease ends first. Whether one of more than a
  -- day can be, phase/ finds out.
  if -last[#last] <= now or longest - now > DAY or pcall('ZREM', queue, owner) ~= 1 then
    return false
  end
  local waiters = string.gsub(queue, 'queue$', 'waiters')
  pcall('HDEL', waiters, owner)
  if used > 0 then
    value = string.format(PHASE_HEAD, used) .. sub(value, 33)
    -- If that is refused, too much is in use until K ends.
    pcall('SET', lock, value, 'PXAT', string.format('%d', longest))
    return 1
  end
  local freed = pcall('DEL', lock)
  return type(freed) == 'table' and 'e' .. freed.err or 1
end

local answers, turn_to, free = {}
for i = 1, count do
  local head, units = sub(heads, 33 * i - 32, 33 * i), tonumber(shared and ARGV[2 + i]) or 0
  if keep == 0 and units > 0 then
    answers[i] = leave_phase(KEYS[i], KEYS[count + i], sub(head, 1, 32), units)
  elseif keep == 0 then
    local passed = pass_on(KEYS[i], KEYS[count + i], KEYS[#KEYS], head)
    answers[i] = (passed or passed == false and pcall('DEL', KEYS[i]) == 1) and 1
  end
  if not answers[i] then
    if not free then
      turn_to, free = library()
    end
    turn_to(KEYS[i], KEYS[count + i])
    local done, answer = free(head, keep)
    -- Before 7.0 what is raised is text.
    answers[i] = done and answer or 'e' .. (type(answer) == 'table' and answer.err or answer)
  end
end
return answers
