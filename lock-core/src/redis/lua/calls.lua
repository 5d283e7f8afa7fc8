-- Takes the steps of one or more calls, one after the other. Put behind the function `library`, which
-- makes all that is in the files before.
--
-- KEYS     of each call, as in queue.lua
-- ARGV[1]  as in queue.lua
-- ARGV[2]  floor: every token that is given must exceed it
-- ARGV[3]  the earliest deadline of the calls that take a lock, as in acquire.lua; 0 if none does
-- ARGV[4]  of each call: the letter of its step, then the arguments of that step
--
-- Returns  server time in us, 0 if no call takes a lock, then the answer to each call.
--
-- Atomic, because each step is. The calls know nothing of each other: what fails of one is its own
-- answer, and leaves the others alone.

local guarded, call, pcall = pcall, redis.call, redis.pcall
local format = string.format
-- How many words a call is: an acquire, one that reserves a block, a requeue, a release (free), one
-- that has more to say (give back).
local WORDS = { a = 6, b = 7, r = 9, f = 2, g = 4 }

-- To read the time, and to read numbers, is a good part of what an uncontended call costs. So it is done
-- once for all, and not for releases.
local now, now_text, in_time = 0, nil, true
if ARGV[3] ~= '0' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  now_text = format('%d', now)
  in_time = now <= tonumber(ARGV[3]) and now > tonumber(ARGV[2])
end

-- Nearly always nobody waits for the locks, and nobody has those that are wanted, or only whoever wants
-- them again. Then this script does the little that is left by itself, without the closures of the
-- library. From here on it raises no error: a call that was executed must get its answer.
-- With room for the few of a lone call: growing a table costs more than filling it.
local busy, n, at = { nil, nil, nil, nil }, 0, 4
for queue = 3, #KEYS, 4 do
  local letter = ARGV[at]
  if letter == 'a' then
    n = n + 1
    busy[n] = KEYS[queue - 2]
  end
  if letter == 'a' or letter == 'f' or letter == 'r' then
    n = n + 1
    busy[n] = KEYS[queue]
  end
  at = at + WORDS[letter]
end
local quiet = in_time and n > 0 and call('EXISTS', unpack(busy, 1, n)) == 0

local answers, turn_to, steps = { now, nil, nil, nil }, nil, nil
at = 4
for number = 1, #KEYS / 4 do
  local letter, lock, answer = ARGV[at], KEYS[4 * number - 3], nil
  if quiet and letter == 'a' then
    -- One token, the time. The fence first, as in `grant`, which also knows what to do if it is ahead.
    local fence = KEYS[4 * number - 2]
    local last = pcall('SET', fence, now_text, 'PX', ARGV[1], 'GET')
    if not last or type(last) == 'string' and (tonumber(last) or now) < now then
      local value = ARGV[at + 1] .. '|' .. now_text .. '|' .. ARGV[at + 4]
      -- A call before this one may have taken it.
      local set = pcall('SET', lock, value, 'PX', ARGV[at + 2], 'NX')
      answer = set and set.ok and now
    elseif type(last) == 'string' then
      pcall('SET', fence, last, 'PX', ARGV[1])
    end
  elseif quiet and letter == 'f' then
    local value = pcall('GETRANGE', lock, 0, 32)
    if type(value) == 'string' then
      answer = value == ARGV[at + 1] .. '|' and pcall('DEL', lock) or 0
    end
  elseif quiet and letter == 'r' then
    local value = pcall('GETRANGE', lock, 0, 32)
    if value == ARGV[at + 7] .. '|' then
      -- Above what was used of the block before. Of a fence that is ahead of it the library knows more.
      local token, fence = math.max(now, ARGV[at + 8] + 1), KEYS[4 * number - 2]
      local last = pcall('SET', fence, format('%d', token + ARGV[at + 6] - 1), 'PX', ARGV[1], 'GET')
      if not last or type(last) == 'string' and (tonumber(last) or token) < token then
        value = ARGV[at + 1] .. '|' .. format('%d', token) .. '|' .. ARGV[at + 4]
        local set = pcall('SET', lock, value, 'PX', ARGV[at + 2])
        answer = set and set.ok and token
      elseif type(last) == 'string' then
        pcall('SET', fence, last, 'PX', ARGV[1])
      end
    end
  end
  if not answer or type(answer) == 'table' then
    -- From here on, somebody may wait.
    quiet = false
    if not steps then
      turn_to, steps = library()
    end
    turn_to(4 * number - 4)
    local done
    done, answer = guarded(steps[letter], at, now)
    -- Before 7.0 what is raised is text.
    answer = done and answer or 'e' .. (type(answer) == 'table' and answer.err or answer)
  end
  answers[number + 1] = answer
  at = at + WORDS[letter]
end
return answers
