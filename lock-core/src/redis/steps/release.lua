-- Frees locks that belong to their claims, leaves their queues, and passes on the locks that are then free.
-- Comes after the function `library`, which defines everything in the files before it.
--
-- KEYS       the locks; then their queues, in the same order; then the clock
-- ARGV[1]    how long they stay taken, ms; 0 frees them now
-- ARGV[1+i]  the owner of the i-th claim, 32 hexadecimal digits and the '|' that follows them in the value
--
-- Returns  1 if all held their locks and nobody waits for them; else a list with the answer to each claim: 1 if it
--          held its lock, 0 if it did not, `e` and text if a command failed.
--
-- Atomic per lock, because the lease may pass to another claim between reading the owner and deleting the
-- key; one script for all of them, because that costs the server a third. A failure of one lock does not
-- affect the others. Writes that need memory go by pcall: a release must work when memory is full.

local pcall, find = redis.pcall, string.find
local count, keep = (#KEYS - 1) / 2, tonumber(ARGV[1])

-- Nearly always all are held and nobody waits for any. Then three commands do.
if keep == 0 and pcall('EXISTS', unpack(KEYS, count + 1, 2 * count)) == 0 then
  local values, held = pcall('MGET', unpack(KEYS, 1, count)), 0
  while held < count and values[held + 1] and find(values[held + 1], ARGV[held + 2], 1, true) == 1 do
    held = held + 1
  end
  if held == count and type(pcall('DEL', unpack(KEYS, 1, count))) == 'number' then
    return 1
  end
end

local answers = {}
local turn_to, free = library()
for i = 1, count do
  turn_to(KEYS[i], KEYS[count + i])
  local done, answer = free(ARGV[1 + i], keep)
  -- Before 7.0 what is raised is text.
  answers[i] = done and answer or 'e' .. (type(answer) == 'table' and answer.err or answer)
end
return answers
