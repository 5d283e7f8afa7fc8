-- Put behind a step and the same without its fast paths by `copies/mod.rs`, which says what it is for: does both in one state,
-- and says what each left.
--
-- KEYS     those of the step
--
-- Returns  of each what it answered, and what lies at the lock, in its queue and its waiters, and whom it told, in words
--
-- Atomic, because both must find the same.

end

-- The part of the server that a step sees: one moment, one token, and the listeners. A step may call these commands in any number
-- and order.
local told
local function seen(answer)
  return function(command, ...)
    local words = { ... }
    if command == 'TIME' then
      return { string.sub(number(moment_ms), 1, -4), string.sub(number(moment_ms), -3) .. '000' }
    elseif command == 'XADD' then
      return number(moment_ms + 1) .. '-7'
    elseif command == 'PUBSUB' then
      local listening = {}
      for at = 2, #words do
        listening[2 * at - 3], listening[2 * at - 2] = words[at], words[at] == LISTENS and 1 or 0
      end
      return listening
    elseif command == 'PTTL' then
      -- To a second: between the two there is some time.
      local left = answer(command, ...)
      return type(left) == 'number' and left > 0 and math.floor(left / 1000 + 0.5) * 1000 or left
    elseif command == 'INFO' then
      -- The history that the calls name.
      return 'master_replid:abcdef0123456789'
    elseif command == 'PUBLISH' then
      told[#told + 1] = words[1] .. ' ' .. words[2]
      return words[1] == LISTENS and 1 or 0
    end
    return answer(command, ...)
  end
end

local function shown(value)
  if type(value) ~= 'table' then
    return tostring(value)
  end
  local parts = {}
  for at, part in ipairs(value) do
    parts[at] = shown(part)
  end
  return value.err or value.ok or '{' .. table.concat(parts, ', ') .. '}'
end

-- The same of what lies there.
local function lasts(key)
  local left = server.call('PTTL', key)
  return left < 0 and number(left) or number(math.floor(left / 1000 + 0.5))
end

-- Whether it goes away if nobody looks after it, and not too soon.
local function outlasts(key)
  local left, lock = server.call('PTTL', key), server.call('PTTL', K)
  return left == -2 and 'gone' or left > lock and 'outlasts' or left < 0 and 'stays' or 'does not outlast'
end

-- The queue in order, holders with the end of their leases. The exact score of a place does not matter.
local function queue()
  local found, shown = server.call('ZRANGE', QUEUE, 0, -1, 'WITHSCORES'), {}
  for at = 1, #found, 2 do
    shown[#shown + 1] = found[at] .. (tonumber(found[at + 1]) < 0 and ' until ' .. found[at + 1] or ' waits')
  end
  return table.concat(shown, ', ')
end

local function outcome(step)
  server.call('FLUSHALL')
  states[state]()
  for _, key in ipairs({ QUEUE, WAITERS }) do
    server.call('PEXPIRE', key, 90000)
  end
  told = {}
  redis.call, redis.pcall = seen(server.call), seen(server.pcall)
  local done, answer = pcall(step)
  -- One lock that was freed, or a list of one.
  local said = (done and '' or 'raised ') .. string.gsub(shown(answer), '^{(%d+)}$', '%1')
  local known = server.call('HGETALL', WAITERS)
  local entries = {}
  for at = 1, #known, 2 do
    entries[#entries + 1] = known[at] .. ' ' .. known[at + 1]
  end
  table.sort(entries)
  return {
    said,
    shown(server.call('GET', K)) .. ', for ' .. lasts(K),
    queue() .. ', ' .. outlasts(QUEUE),
    table.concat(entries, '\n') .. ', ' .. outlasts(WAITERS),
    table.concat(told, '\n'),
  }
end

return { outcome(step), outcome(whole) }
