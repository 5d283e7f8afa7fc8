-- Takes the lock if it is free and no reachable waiter is queued for it, confirms it if it already
-- belongs to the claim, or queues the claim. Ends another claim first, if one is named.
--
-- KEYS     the lock, its queue and its waiters as in layout.lua, and the clock
-- ARGV[1]  owner, 32 hexadecimal digits
-- ARGV[2]  ttl, ms
-- ARGV[3]  deadline, server time in us: later than this the caller may be gone
-- ARGV[4]  the rest of the value: `ttl|host|pid|site|lock name`
-- ARGV[5]  ticket: `stamp|grant_ttl|inbox`, the stamp of this request, echoed by a grant, for how long
--          the queue grants the lock, ms, and whom to tell; then `|` and for how long the claim may sleep at a time,
--          ms, if it may; empty not to queue
-- ARGV[6]  floor: the token must exceed it
-- ARGV[7]  owner of a claim that ends; not there if none does
--
-- Returns  {now, answer}, now being server time in us, and the answer one of
--          `g` token           K is the claim's for its whole ttl; if it was before, with a new token
--          `h` PTTL `|` value  K belongs to another holder; at most 512 bytes of its value
--          `q` PTTL `|` value  the same, and the claim stands in the queue
--                              in both, an empty value: K is left free so long, for clients of other libraries
--          `z` ms `|` PTTL `|` value  the same as `q`, and the claim sleeps: it need not ask for so long
--          `s`                 the deadline has passed, nothing was done
--          `c`                 the floor lies too far ahead of the server's time
--          `t` name            this key is of another type, nothing was done
--          `e` text            the error of a command; the claim has not taken K
--
-- Atomic, because the deadline must still hold and the token be drawn at the moment K is taken; and
-- because another claim could be passed over between the end of one claim and the start of the next.

local owner, ttl, deadline, tail, ticket, floor, ended = unpack(ARGV)
LOCK, QUEUE, WAITERS = KEYS[1], KEYS[2], KEYS[3]

local function acquire(now)
  local value = read_lock()
  if failed(value) then
    return refusal(value, LOCK)
  end
  if phase_of(value) then
    return phases().acquire({ owner, ttl, tail, ticket, floor, 'x' }, ended, now)
  end
  -- First the claim that ends. `freed` is what it had, if K is free now because of that. Where a few commands pass K on, the new
  -- claim enters below, behind all others as well.
  local freed = false
  local passed = ended and ticket ~= '' and pass_on(LOCK, QUEUE, CLOCK, ended .. '|', value or '')
  if passed then
    value = passed
  elseif ended then
    leave(ended)
    if is_of(value, ended) then
      call('DEL', LOCK)
      freed, value = value, false
    end
    if not value and ticket ~= '' and call('EXISTS', QUEUE) == 1 then
      -- It enters before the lock moves on, and behind all others.
      local refused = enter(owner, ticket, floor, tail, now, QUEUE_KEPT)
      if refused then
        return refused
      end
    end
  end
  if is_of(value, owner) then
    -- A repeat: its answer may have been lost.
    local token, refused = draw(floor, now)
    refused = not token and refused or raise_expiry(ttl)
    leave(owner)
    return refused or 'g' .. token
  end
  -- Then the new one. K is free, and may be left so for a moment; or somebody in front of it gets K; or it does.
  local free_for = value and 0 or left_free(freed, now)
  if not value and free_for == 0 then
    local waiting = call('EXISTS', QUEUE) == 1
    if not waiting or move_on(owner, now) ~= 'granted' then
      local token, refused = grant(owner, ttl, floor, tail, now)
      if token and waiting then
        leave(owner)
        wake_watcher(now)
      end
      return token and 'g' .. token or refused
    end
    value = read_lock()
  elseif value and string.byte(value, 33) ~= BAR then
    meet(now)
  end
  local state = 'h'
  if ticket ~= '' then
    local refused, sleep = enter(owner, ticket, floor, tail, now, QUEUE_KEPT, value)
    if refused then
      return refused
    end
    state = sleep and 'z' .. sleep .. '|' or 'q'
  end
  if not value then
    return state .. text(math.ceil(free_for / 1000)) .. '|'
  end
  return state .. time_left() .. '|' .. value
end

local now = time()
return { now, now > tonumber(deadline) and 's' or acquire(now) }
