-- Frees locks that belong to their claims, leaves their queues, and passes on the locks that are then free.
-- Comes after `pass.lua` and the function `library`, which defines everything else in the files before it.
--
-- KEYS     the locks; then their queues, in the same order; then the clock
-- ARGV[1]  how long they stay taken, ms; 0 frees them now
-- ARGV[2]  the owners of the claims, each in 32 hexadecimal digits and the '|' that follows them in the value;
--          one word, because a word for each costs the server as much as the work that is done with it
--
-- Returns  1 if all held their locks and nobody waits for them; else a list with the answer to each claim: 1 if it
--          held its lock, 0 if it did not, `e` and text if a command failed.
--
-- Atomic per lock, because the lease may pass to another claim between reading the owner and deleting the
-- key; one script for all of them, because that costs the server a third. A failure of one lock does not
-- affect the others. Writes that need memory go by pcall: a release must work when memory is full.

local pcall, sub = redis.pcall, string.sub
local count, keep, heads = (#KEYS - 1) / 2, tonumber(ARGV[1]), ARGV[2]

-- Nearly always all are held and nobody waits for any. Then three commands do what `free` of free.lua would do with each. If
-- one of them is not as it should be, nothing was done, and each lock is looked at by itself.
if keep == 0 and pcall('EXISTS', unpack(KEYS, count + 1, 2 * count)) == 0 then
  local values = pcall('MGET', unpack(KEYS, 1, count))
  for i = 1, count do
    local value = values[i]
    values[i] = value and sub(value, 1, 33) or ''
  end
  if table.concat(values) == heads and type(pcall('DEL', unpack(KEYS, 1, count))) == 'number' then
    return 1
  end
end

local answers, turn_to, free = {}
for i = 1, count do
  local lock, queue, head = KEYS[i], KEYS[count + i], sub(heads, 33 * i - 32, 33 * i)
  if keep == 0 then
    local passed, value = pass_on(lock, queue, KEYS[#KEYS], head)
    answers[i] = value and leave_phase(lock, queue, head, value)
      or (passed or passed == false and pcall('DEL', lock) == 1) and 1
  end
  if not answers[i] then
    if not free then
      turn_to, free = library()
    end
    turn_to(lock, queue)
    answers[i] = free(head, keep)
  end
end
return answers
