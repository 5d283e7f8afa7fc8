-- Remembers which lists of members are in use, or that the data have no gap.
--
-- KEYS[1]  the lists: a hash of each list and until when it is remembered, server ms
-- KEYS[2]  the birth, as in member.lua
-- ARGV[1]  a list to remember; empty for none; `vouch` to declare that the data have no gap
-- ARGV[2]  for how long, ms
--
-- Returns  the lists that are remembered.
--
-- Atomic, because a list that is remembered must not be swept out by another process that read it before.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local list, keep_for = ARGV[1], tonumber(ARGV[2])
if list == 'vouch' then
  local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
  redis.call('SET', KEYS[2], history .. '|0')
  return {}
end
local known, lists, latest = redis.call('HGETALL', KEYS[1]), {}, 0
for i = 1, #known, 2 do
  local ends = tonumber(known[i + 1]) or 0
  -- It was written while the clock was ahead: nobody remembers a list for longer than this.
  local longest = now + 3 * (tonumber(string.match(known[i], '^%d+|(%d+)|')) or 0)
  if known[i] == list then
    latest = math.max(latest, math.min(ends, longest))
  elseif math.min(ends, longest) > now then
    if ends > longest then
      ends = longest
      redis.pcall('HSET', KEYS[1], known[i], string.format('%d', ends))
    end
    lists[#lists + 1] = known[i]
    latest = math.max(latest, ends)
  else
    redis.call('HDEL', KEYS[1], known[i])
  end
end
if list ~= '' then
  lists[#lists + 1] = list
  local lasts = string.format('%d', math.max(latest - now, keep_for))
  -- Before there is anything without an expiry, it is known whether it may have one.
  local there = redis.call('PEXPIRE', KEYS[1], lasts) == 1
  redis.call('HSET', KEYS[1], list, string.format('%d', now + keep_for))
  local refused = not there and redis.pcall('PEXPIRE', KEYS[1], lasts)
  if type(refused) == 'table' then
    redis.call('DEL', KEYS[1])
    return refused
  end
end
return lists
