-- Frees locks that belong to their claims, leaves their queues, and passes on the locks that are then free.
-- Comes after the function `library`, which defines everything in the files before it.
--
-- KEYS       the locks; then their queues, in the same order; then the clock
-- ARGV[1]    how long they stay taken, ms; 0 frees them now
-- ARGV[1+i]  the owner of the i-th claim, 32 hexadecimal digits and the '|' that follows them in the value
--
-- Returns  of each claim: 1 if it held its lock, 0 if it did not, `e` and text if a command failed.
--
-- Atomic per lock, because the lease may pass to another claim between reading the owner and deleting the
-- key; one script for all of them, because that costs the server a third. A failure of one lock does not
-- affect the others. Writes that need memory go by pcall: a release must work when memory is full.

local pcall, find = redis.pcall, string.find
local count, keep = (#KEYS - 1) / 2, tonumber(ARGV[1])
local answers = {}

-- Nearly always nobody waits for any of them. Then three commands do.
if keep == 0 and pcall('EXISTS', unpack(KEYS, count + 1, 2 * count)) == 0 then
  local values, mine = pcall('MGET', unpack(KEYS, 1, count)), {}
  if not values.err then
    for i = 1, count do
      answers[i] = 0
      if values[i] and find(values[i], ARGV[1 + i], 1, true) == 1 then
        answers[i] = 1
        mine[#mine + 1] = KEYS[i]
      end
    end
    if #mine == 0 or type(pcall('DEL', unpack(mine))) == 'number' then
      return answers
    end
  end
end

local turn_to, free = library()
for i = 1, count do
  turn_to(KEYS[i], KEYS[count + i])
  local done, answer = free(ARGV[1 + i], keep)
  -- Before 7.0 what is raised is text.
  answers[i] = done and answer or 'e' .. (type(answer) == 'table' and answer.err or answer)
end
return answers
