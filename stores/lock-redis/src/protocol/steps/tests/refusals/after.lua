-- Put behind a step by `refusals.rs`.
--
-- KEYS     those of the step
--
-- Returns  what the step answered; what it raised; how many commands it called; whether it did not end; the keys without an
--          expiry; what is left of my lease and that of another, before and after, ms; the units that are in use as the
--          lock says, and those of the holders; whether it is marked as done
--
-- Atomic, because the step is.

end


local done, answer = pcall(step)
local raised = ''
if not done then
  raised, answer = type(answer) == 'table' and answer.err or tostring(answer), false
end
if type(answer) == 'table' and answer.err then
  raised, answer = answer.err, false
end
local everlasting = {}
for _, key in ipairs(server.call('KEYS', '*')) do
  if server.call('PTTL', key) == -1 then
    everlasting[#everlasting + 1] = key
  end
end
local value, used, units = server.call('GET', K) or '', 0, 0
if string.sub(value, 1, 6) == 'shared' then
  used = tonumber(string.sub(value, 7, 32))
  local holders = server.call('ZRANGE', QUEUE, '-inf', '(' .. number(-moment_ms), 'BYSCORE')
  for _, owner in ipairs(holders) do
    units = units + (string.match(server.call('HGET', WAITERS, owner) or '', '|s(%d+)/') or 1)
  end
end
return {
  answer, raised, calls, runaway and 1 or 0, everlasting,
  { mine_before, left_of(ME) }, { others_before, left_of(OTHER) }, { used, units }, server.call('EXISTS', '{k}@done:v42'),
}
