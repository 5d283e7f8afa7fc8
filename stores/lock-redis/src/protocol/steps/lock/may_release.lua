-- Finds out whether the user of this connection may run in a script what renews a lock and gives it back. Without that a lock
-- that is granted would stay taken for its ttl.
--
-- KEYS     none: a node of a cluster would refuse a slot that it does not serve
-- ARGV[1]  a name below which nothing lies, so that no command changes anything
--
-- Returns  an empty text, or the first refusal: the command, a colon, and the server's error.
--
-- Only a refusal of the command itself counts. A refusal of this key, by a user whose patterns lack it, and one that passes, by
-- a replica or a full memory, say nothing about a lock. Atomic only because a script is the place that is examined.

local key, find = ARGV[1], string.find
local calls = { { 'GETRANGE', key, 0, 0 }, { 'DEL', key }, { 'PEXPIRE', key, 1 }, { 'ZREM', key, 'x' } }
for i = 1, #calls do
  local answer = redis.pcall(unpack(calls[i]))
  local why = type(answer) == 'table' and answer.err or ''
  local refused = find(why, "can't run") or find(why, 'permissions to run') or find(why, 'undeclared key')
  if refused or find(why, 'Unknown Redis command') then
    return calls[i][1] .. ': ' .. why
  end
end
return ''
