-- Runs one write unless a newer token has been seen, and remembers the token.
--
-- KEYS[1]  what is written
-- KEYS[2]  where the newest token is kept
-- ARGV[1]  the token of the writer
-- ARGV[2]  how long to remember it, in ms; empty: for ever
-- ARGV[3]  the name of the write; ARGV[4..]  its arguments after the key
--
-- Returns what the write returns, or the error STALETOKEN with the refused and the newest token.
--
-- Atomic, because a newer holder may write between the look at the newest token and the write.
local token, newest = ARGV[1], redis.call('GET', KEYS[2])
if newest and not string.find(newest, '^%d+$') then
    return redis.error_reply('ERR ' .. KEYS[2] .. ' holds no fencing token; delete it, or use another key')
end
-- As text, because Lua's numbers are exact up to 2^53 only.
if newest and (#newest > #token or (#newest == #token and newest > token)) then
    return redis.error_reply('STALETOKEN ' .. token .. ' was refused, the newest token is ' .. newest)
end
if ARGV[2] ~= '' then
    redis.call('SET', KEYS[2], token, 'PX', ARGV[2])
elseif newest ~= token then
    redis.call('SET', KEYS[2], token)
end
return redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))
