-- The queue of a lock: who enters it, who leaves it, and what is known of them. Comes after `lock.lua` and `entry.lua`.
--
-- KEYS     as in layout.lua
--
-- Returns  what the step says that follows.
--
-- Atomic, because the next claim must not change between freeing a lock and granting it.
--
-- The queue is a sorted set. A score of zero or more is a place: server us, but always above the last place, so that two claims of
-- the same us stay in order. A score below zero is a lease in a phase. The entry of a claim lies apart, in the waiters,
-- because the order does not need it, and a place outlives every new ticket.

local function read_entry(owner, now)
  return unpack_entry(owner, is_owner(owner) and pcall('HGET', WAITERS, owner), now)
end

-- Writes that a claim was passed over: it keeps its place, and is granted anyway once it asks again.
local function pass_over(owner, entry)
  local ticket = table.concat({ entry.stamp, entry.grant_ttl, entry.inbox }, '|')
  pcall('HSET', WAITERS, owner, pack_entry(ticket, entry.confirmed, '1', entry.known, entry.tail))
end

-- Takes a claim out of the queue. By pcall: whatever has become of the queue, a lock must be freed. Returns what was refused, if
-- anything.
local function leave(owner)
  local left = pcall('ZREM', QUEUE, owner)
  if left == 1 then
    pcall('HDEL', WAITERS, owner)
  end
  return failed(left) and left
end

-- Writes to the queue or the waiters, which then last so long, ms. Returns why it could not: then nothing was written.
-- A user may lack PEXPIRE: that is known before there is anything without an expiry.
local function put(lasts, command, key, ...)
  lasts = text(math.min(lasts, LAST_MS))
  local raised = pcall('PEXPIRE', key, lasts)
  local written = failed(raised) and raised or pcall(command, key, ...)
  if not failed(written) and raised == 0 then
    -- It was not there.
    raised = pcall('PEXPIRE', key, lasts)
    if failed(raised) then
      pcall('DEL', key)
      written = raised
    end
  end
  return failed(written) and refusal(written, key)
end

-- Gives a claim the place that it had before, if any. Returns whether it holds nothing then.
local function put_back(owner, place)
  if place then
    return not failed(pcall('ZADD', QUEUE, place, owner))
  end
  pcall('HDEL', WAITERS, owner)
  -- It was let in by a ZADD.
  return not failed(pcall('ZREM', QUEUE, owner)) or not failed(pcall('ZADD', QUEUE, 0, owner))
end

-- Notes a holder of units that K counts already, or does not count yet, in keys that last so long, ms. Returns why it could not,
-- if so.
local function let_in(owner, entry, ends, lasts)
  local refused = put(lasts, 'HSET', WAITERS, owner, entry)
  if not refused then
    refused = put(lasts, 'ZADD', QUEUE, text(-ends), owner)
    if refused then
      pcall('HDEL', WAITERS, owner)
    end
  end
  return refused
end

-- Takes out what is known of claims that stand in no queue any more: somebody deleted it, or HDEL was
-- not permitted for a while. If that is more than one script may look at, a part of it.
local function sweep(now)
  local known, waiting = pcall('HLEN', WAITERS), pcall('ZCARD', QUEUE)
  local others = type(pcall('HGET', WAITERS, OTHERS)) == 'string' and 1 or 0
  if type(known) ~= 'number' or type(waiting) ~= 'number' or known - others <= waiting then
    return
  end
  local owners, step = nil, 1
  if known <= MOST then
    owners = pcall('HKEYS', WAITERS)
  else
    -- Any number is a cursor: this time here, next time elsewhere.
    owners, step = pcall('HSCAN', WAITERS, text(now % 4294967296), 'COUNT', MOST / 4), 2
    owners = failed(owners) and {} or owners[2]
  end
  for at = 1, failed(owners) and 0 or #owners, step do
    if owners[at] ~= OTHERS and pcall('ZSCORE', QUEUE, owners[at]) == false then
      pcall('HDEL', WAITERS, owners[at])
    end
  end
end

-- Returns for how long a claim in the queue may sleep, ms, or nothing; and for how long anybody there may. `since` is its place,
-- `value` what lies at K, or false: nobody sleeps in front of a K that is free.
--
-- The first two of those who can be reached watch the lock: they ask when the lease in their way would end, and sleep no longer than
-- they must, because a message may be lost, and a key may be deleted. The others ask the more seldom the more stand in front of them.
local function sleep_of(owner, ticket, since, value, now)
  local _, grant_ttl, _, least = string.match(ticket, TICKET)
  least = tonumber(least)
  if not least or not value or now - since < ASLEEP_AFTER then
    return
  end
  local rank, sharing, all = pcall('ZRANK', QUEUE, owner), pcall('ZCOUNT', QUEUE, '-inf', '(0'), pcall('ZCARD', QUEUE)
  if type(rank) ~= 'number' or type(sharing) ~= 'number' or type(all) ~= 'number' then
    return
  end
  local before, reached, looked = rank - sharing, 0, 0
  -- Nearly always the first two can be reached.
  for _, upto in ipairs({ WATCHERS, WALK }) do
    upto = math.min(before, upto)
    if reached < WATCHERS and looked < upto then
      local owners = call('ZRANGE', QUEUE, sharing + looked, sharing + upto - 1)
      for _, entry in ipairs(pcall('HMGET', WAITERS, unpack(owners))) do
        if entry and string.match(entry, '^[^|]*|%d+|%d+|(%d)') ~= '1' then
          reached = reached + 1
        end
      end
      looked = upto
    end
  end
  local pause
  if reached >= WATCHERS then
    pause = math.max(least, (before + 1) * least / SLEEPERS)
  elseif string.byte(value, 33) == BAR then
    pause = tonumber(time_left())
    if sharing > 0 then
      -- The claim whose lease ends first, among those that share K.
      local first = call('ZRANGE', QUEUE, sharing - 1, sharing - 1, 'WITHSCORES')
      pause = math.min(pause, -first[2] - math.floor(now / 1000))
    end
    pause = math.min(pause, least)
  else
    -- It polls.
    return
  end
  if pause > math.min(grant_ttl / 3, 1000) then
    local longest = math.max(least, math.min(all * least / SLEEPERS, least * LONGEST_SLEEP))
    return math.floor(math.min(pause, longest)), longest
  end
end

-- Puts a claim at the tail, or confirms its place, in a queue that lasts so long, ms, if nobody confirms it. `known` is as in
-- entry.lua, `value` what lies at K, or false. Returns what was refused, if anything; and for how long the claim sleeps, ms, if it
-- does.
local function enter(owner, ticket, known, tail, now, lasts, value)
  local before, place = pcall('HGET', WAITERS, owner), pcall('ZSCORE', QUEUE, owner)
  if failed(before) then
    return refusal(before, WAITERS)
  end
  if failed(place) then
    return refusal(place, QUEUE)
  end
  local reach, score, confirmed, sleep, longest = '0', nil, now, nil, nil
  -- A claim that shares K does not ask for a place, so the lease of a negative score has ended.
  if before and place and tonumber(place) >= 0 then
    reach = string.match(before, '^[^|]*|[^|]*|[^|]*|(%d)') or '0'
    -- It asked again after it was passed over: it lives, and will learn of a grant by asking.
    if reach == '1' then
      reach = '2'
    elseif reach == '0' and now - place >= ASLEEP_AFTER then
      sleep, longest = sleep_of(owner, ticket, place, value, now)
    end
    if sleep then
      -- It is gone when it has missed three of its pauses.
      confirmed = math.max(now, now + (3 * sleep - string.match(ticket, '^%d+|(%d+)')) * 1000)
      lasts = math.max(lasts, 3 * longest)
    end
  else
    sweep(now)
    local last = tonumber(call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')[2]) or 0
    -- No claim can have come so much later.
    score = last > now + DAY * 1000 and now or math.max(now, last + 1)
  end
  -- The entry first: any step removes a place without an entry.
  local refused = put(lasts, 'HSET', WAITERS, owner, pack_entry(ticket, text(confirmed), reach, known, tail))
  if not refused and score then
    refused = put(lasts, 'ZADD', QUEUE, score, owner)
    if refused then
      pcall('HDEL', WAITERS, owner)
    end
  elseif not refused then
    local raised = pcall('PEXPIRE', QUEUE, text(lasts))
    refused = failed(raised) and refusal(raised, QUEUE)
  end
  return refused, sleep and text(sleep)
end

