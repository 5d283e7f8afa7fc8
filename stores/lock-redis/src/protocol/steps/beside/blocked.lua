-- Reads, writes or removes what the holder of a lock waits for.
--
-- KEYS[1]  what is kept beside the lock
-- ARGV[1]  what to write; empty removes it; absent reads it
-- ARGV[2]  how long to keep it, ms
--
-- Returns  the text that is kept, nil if there is none, when it reads; else whatever the command returns.
--
-- Atomic, because it is one command whichever way it takes; a script, so that it is sent as all others are.

if not ARGV[1] then
  return redis.call('GET', KEYS[1])
end
if ARGV[1] == '' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
