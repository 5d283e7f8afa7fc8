-- Makes a lock whose holders' leases are nearly all over.
--
-- KEYS     none: those of the lock `k`
-- ARGV[1]  `shared` if one is not, and the lock counts all; else what is left of them has no lock
--
-- Returns  nothing.
--
-- Atomic, because nobody may see a part of it.

redis.call('FLUSHALL')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local tail = '60000|host|1|site|name'
local function holds(owner, ends)
  redis.call('ZADD', '{k}@queue', string.format('%d', -ends), owner)
  redis.call('HSET', '{k}@waiters', owner, '|7|' .. string.format('%d', now * 1000) .. '|0|60000|s1/20000|0-0|' .. tail)
end
for number = 1, 10000 do
  holds(string.format('%032x', number), now - number)
end
if ARGV[1] == 'shared' then
  holds(string.rep('b', 32), now + 60000)
  redis.call('SET', 'k', string.format('shared%026d', 10001) .. '|' .. string.format('%d', now) .. '-0-0|' .. tail, 'PX', 60000)
end
for _, key in ipairs({ '{k}@queue', '{k}@waiters' }) do
  redis.call('PEXPIRE', key, 90000)
end
