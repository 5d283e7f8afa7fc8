-- Put in front of a step by `refusals.rs`, which says what it is for: brings a lock into a state, and lies in front of the
-- functions of the server, so that they refuse what the test says.
--
-- KEYS     those of the step
-- ARGV[…]  those of the step; then the state, how to refuse, which commands or which one, and the text of the refusal
--
-- Returns  what follows the step.
--
-- Atomic, because the step is.

local server, words, keys = redis, ARGV, KEYS
local state, how, which, refused_by = unpack(words, #words - 3)
local ARGV, KEYS = { unpack(words, 1, #words - 4) }, keys

local K, QUEUE, WAITERS = 'k', '{k}@queue', '{k}@waiters'
local ME, OTHER, THIRD, FOURTH = string.rep('a', 32), string.rep('b', 32), string.rep('c', 32), string.rep('e', 32)
local TAIL = '60000|host|1|site|name'
local moment = server.call('TIME')
local moment_ms = moment[1] * 1000 + math.floor(moment[2] / 1000)

local LISTENS, AWAY = 'distributed-lock:inbox:listens', 'distributed-lock:inbox:away'

local function number(value)
  return string.format('%d', value)
end

local function alone(owner, value)
  server.call('SET', K, value or owner .. '|' .. number(moment_ms) .. '|' .. TAIL, 'PX', 60000)
end

local function entry(inbox, mode)
  local known = { inbox, '7', number(moment_ms * 1000), '0', '60000', mode, '0-0', TAIL }
  return string.gsub(table.concat(known, '|'), '||0%-0', '|0-0')
end

local function waits(owner, inbox, mode)
  server.call('ZADD', QUEUE, number(moment_ms * 1000), owner)
  server.call('HSET', WAITERS, owner, (entry(inbox, mode)))
end

-- The same since a while ago.
local function sleeps(owner, inbox, mode, reach)
  server.call('ZADD', QUEUE, number(moment_ms * 1000 - 5000000), owner)
  local ahead = number(moment_ms * 1000 + 27000000) .. '|' .. (reach or '0')
  local known = string.gsub(entry(inbox, mode), number(moment_ms * 1000) .. '|0', ahead)
  server.call('HSET', WAITERS, owner, known)
end

-- I have K, and two sleep, behind whom comes another one, or none.
local function two_sleep(...)
  alone(ME)
  sleeps(OTHER, LISTENS, '')
  sleeps(THIRD, LISTENS, '')
  if ... then
    sleeps(FOURTH, ...)
  end
end

-- Puts something else in an entry.
local function change(owner, from, to)
  local known = server.call('HGET', WAITERS, owner)
  server.call('HSET', WAITERS, owner, (string.gsub(known, from, to)))
end

local function shares(owner, units, left)
  server.call('ZADD', QUEUE, number(-(moment_ms + left)), owner)
  server.call('HSET', WAITERS, owner, (entry('', 's' .. units .. '/4')))
end

local function phase(used, left)
  local value = string.format('shared%026d', used) .. '|' .. number(moment_ms) .. '-0-0|' .. TAIL
  server.call('SET', K, value, 'PXAT', number(moment_ms + (left or 60000)))
end

local states = {
  ['free'] = function() end,
  ['mine'] = function() alone(ME) end,
  ['mine, one waits'] = function() alone(ME) waits(OTHER, LISTENS, '') end,
  ['mine, one waits who is away'] = function() alone(ME) waits(OTHER, AWAY, '') end,
  ['mine, a reader waits'] = function() alone(ME) waits(OTHER, LISTENS, 's1/4') waits(THIRD, AWAY, 's1/4') end,
  ['mine, one waits whose name is none'] = function() alone(ME) waits(string.rep('x', 32), LISTENS, '') end,
  ['mine, one waits who knows too much'] = function()
    alone(ME) waits(OTHER, LISTENS, '') change(OTHER, 'name$', string.rep('n', 2048))
  end,
  ['mine, one waits for longer than can be'] = function()
    alone(ME) waits(OTHER, LISTENS, '') change(OTHER, '|60000|', '|3600001|')
  end,
  ['mine, one waits who will have asked tomorrow'] = function()
    alone(ME) waits(OTHER, LISTENS, '') change(OTHER, number(moment_ms * 1000), number(moment_ms * 1000 + 3601000000))
  end,
  ['mine, one sleeps'] = function() alone(ME) sleeps(OTHER, LISTENS, '') end,
  ['mine, sleepers wait'] = function() two_sleep() end,
  ['mine, one sleeps, others have just come'] = function()
    alone(ME) sleeps(OTHER, LISTENS, '') waits(THIRD, LISTENS, '') waits(FOURTH, LISTENS, '')
  end,
  ['mine, one sleeps, another one has just come, and sleeps'] = function()
    two_sleep() server.call('ZADD', QUEUE, number(moment_ms * 1000), THIRD)
  end,
  ['mine, three sleep'] = function() two_sleep(LISTENS, '') end,
  ['mine, three sleep, the last is away'] = function() two_sleep(AWAY, '') end,
  ['mine, three sleep, the last wants to read'] = function() two_sleep(LISTENS, 's1/4') end,
  ['mine, three sleep, the last was passed over'] = function() two_sleep(LISTENS, '', '1') end,
  ['mine, three sleep, the last has asked again'] = function() two_sleep(LISTENS, '', '2') end,
  ['mine, three sleep, one cannot be read'] = function() two_sleep(LISTENS, '') change(THIRD, '|', '') end,
  ['mine, three sleep, one knows too much'] = function() two_sleep(LISTENS, '') change(THIRD, 'name$', string.rep('n', 2048)) end,
  ['mine, three sleep, I am one of them'] = function() two_sleep() sleeps(ME, LISTENS, '') server.call('ZADD', QUEUE, number(moment_ms * 1000 - 4000000), ME) end,
  ['mine, two sleep, the third is awake'] = function() two_sleep() waits(FOURTH, LISTENS, '') end,
  ['mine, two are awake, the third sleeps'] = function()
    two_sleep(LISTENS, '')
    for _, owner in ipairs({ OTHER, THIRD }) do
      change(owner, number(moment_ms * 1000 + 27000000), number(moment_ms * 1000))
    end
  end,
  ['mine, what is left of a phase has no units'] = function()
    two_sleep()
    for at, owner in ipairs({ OTHER, THIRD }) do
      server.call('ZADD', QUEUE, number(-at), owner)
    end
  end,
  ['held, I sleep'] = function() alone(THIRD) sleeps(ME, LISTENS, '') sleeps(OTHER, LISTENS, '') end,
  ['shared by all, sleepers wait'] = function() phase(4) shares(ME, 4, 60000) sleeps(OTHER, LISTENS, 's4/4') sleeps(THIRD, LISTENS, '') end,
  ['held'] = function() alone(OTHER) end,
  ['held, I wait'] = function() alone(OTHER) waits(ME, LISTENS, '') end,
  ['held, I wait to read'] = function() alone(OTHER) waits(ME, LISTENS, 's1/4') end,
  ['held by a stranger'] = function() alone(OTHER, 'somebody') end,
  ['left, and kept'] = function() alone(string.rep('0', 32)) end,
  ['free, one waits'] = function() waits(OTHER, LISTENS, '') end,
  ['free, one waits who is away'] = function() waits(OTHER, AWAY, '') end,
  ['free, readers wait'] = function() waits(OTHER, AWAY, 's1/4') waits(THIRD, LISTENS, 's1/4') end,
  ['free, I wait'] = function() waits(ME, LISTENS, '') end,
  ['shared'] = function() phase(1) shares(OTHER, 1, 60000) end,
  ['shared for longer'] = function() phase(1, 88000) shares(OTHER, 1, 88000) end,
  ['shared, and nobody knows by whom'] = function() phase(1) shares(OTHER, 1, 60000) server.call('DEL', WAITERS) end,
  ['shared by all'] = function() phase(4) shares(OTHER, 4, 60000) end,
  ['shared by me'] = function() phase(1) shares(ME, 1, 60000) end,
  ['shared by me and another'] = function() phase(3) shares(OTHER, 2, 60000) shares(ME, 1, 50000) end,
  ['shared by me for longer'] = function() phase(3, 70000) shares(OTHER, 2, 60000) shares(ME, 1, 70000) end,
  ['shared, one waits'] = function() phase(2) shares(OTHER, 1, 60000) shares(ME, 1, 50000) waits(THIRD, LISTENS, '') end,
  ['shared, a lease is over'] = function()
    phase(3) shares(OTHER, 1, 60000) shares(THIRD, 2, -5)
  end,
  ['shared by me, a lease is over, one waits'] = function()
    phase(4) shares(ME, 1, 60000) shares(THIRD, 3, -5) waits(OTHER, LISTENS, 's2/4')
  end,
  ['shared by all, one waits who is away'] = function()
    phase(4) shares(THIRD, 3, -5) shares(ME, 1, 60000) waits(OTHER, AWAY, 's2/4')
  end,
  ['all leases are over'] = function() phase(3) shares(OTHER, 1, -5) shares(THIRD, 2, -50) end,
  ['holders without a lock'] = function() shares(OTHER, 1, 60000) shares(THIRD, 2, -5) end,
  ['left free'] = function()
    waits(OTHER, LISTENS, '')
    server.call('HSET', WAITERS, 'others', number(moment_ms * 1000 + 15000) .. '|' .. number(moment_ms * 1000 + 9000000))
  end,
}

server.call('FLUSHALL')
states[state]()
for _, key in ipairs({ QUEUE, WAITERS }) do
  server.call('PEXPIRE', key, 90000)
end

local function left_of(owner)
  local value = server.call('GET', K) or ''
  if string.sub(value, 1, 32) == owner then
    return server.call('PTTL', K)
  end
  local score = tonumber(server.call('ZSCORE', QUEUE, owner) or 0)
  if string.sub(value, 1, 6) == 'shared' and score < -moment_ms then
    return math.min(-score - moment_ms, server.call('PTTL', K))
  end
  return 0
end
local mine_before, others_before = left_of(ME), left_of(OTHER)

-- The commands that a server refuses when its memory is full.
local GROWS = { SET = true, ZADD = true, HSET = true, XADD = true }
local WRITES = { SET = true, ZADD = true, HSET = true, XADD = true, DEL = true, ZREM = true, HDEL = true, PEXPIRE = true }
local calls, writes, written, runaway = 0, 0, false, false

local function refuses(command)
  calls = calls + 1
  if calls > 3000 then
    runaway = true
    error('it does not end')
  end
  local write = WRITES[command]
  writes = writes + (write and 1 or 0)
  local refuses = how == 'all' and write
    or how == 'growth' and GROWS[command] and not written
    or how == 'one' and write and writes == tonumber(which)
    or how == 'commands' and string.find(which, ' ' .. command .. ' ', 1, true)
  written = written or write and not refuses
  return refuses
end

local redis = { REDIS_VERSION_NUM = server.REDIS_VERSION_NUM }
function redis.pcall(command, ...)
  return refuses(command) and { err = refused_by } or server.pcall(command, ...)
end
function redis.call(command, ...)
  if refuses(command) then
    -- Before 7.0 what is raised is text.
    error(server.REDIS_VERSION_NUM and { err = refused_by } or refused_by)
  end
  return server.call(command, ...)
end

local function step()
