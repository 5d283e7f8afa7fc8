-- Deletes a key that holds exactly this value.
--
-- KEYS[1]  the lock K
-- ARGV[1]  the value that a client of another library wrote
--
-- Returns  1 if it did, 0 if the key is gone or has another value. A key of another type raises WRONGTYPE.
--
-- Atomic, because the key may pass to another client between reading the value and deleting it.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
