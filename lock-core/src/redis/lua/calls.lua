-- Takes the steps of one or more calls, one after the other. Put behind the steps.
--
-- KEYS     of each call, as in queue.lua
-- ARGV[2]  of each call: the letter of its step, then the arguments of that step
--
-- Returns  server time in us, then the answer to each call.
--
-- Atomic, because each step is. The calls know nothing of each other: what fails of one is its own
-- answer, and leaves the others alone.

local now = clock()
local answers, at = { now }, 2
for i = 1, #KEYS / 4 do
  turn_to(4 * i - 4)
  local step = STEPS[ARGV[at]]
  local done, answer = guarded(step[2], at, now)
  -- Before 7.0 what is raised is text.
  answers[i + 1] = done and answer or 'e' .. (type(answer) == 'table' and answer.err or answer)
  at = at + step[1] + 1
end
return answers
