-- The memory of a quorum's member beside its locks. Comes after lock.lua.
--
-- KEYS     the last two: the fence of a lock, a string `ms-seq`, the last token given of it; and the birth, a string
--          `master_replid|ms`: when the data began that this history of the server holds
--
-- Returns  what the step says that follows.
--
-- Atomic, because the step is.

local FENCE, BIRTH = KEYS[#KEYS - 1], KEYS[#KEYS]

-- A fence outlives its last token by this much, ms. Then the server's time is ahead of it.
local FENCE_KEPT = 3600000

-- Returns for how long the data have been kept, ms, or nothing and what was refused. A restart and a promotion begin
-- another history, a flush takes its birth along: either may have lost locks. A birth that lies ahead was written while
-- the clock was wrong: it is now at the latest.
local function age_of_data(now)
  local replication = pcall('INFO', 'replication')
  if failed(replication) then
    return nil, 'e' .. replication.err
  end
  local history = string.match(replication, 'master_replid:(%x+)') or ''
  local birth = pcall('GET', BIRTH)
  if failed(birth) then
    return nil, refusal(birth, BIRTH)
  end
  local of, since = string.match(birth or '', '^(%x*)|(%d+)$')
  local now_ms = math.floor(now / 1000)
  if of ~= history or tonumber(since) > now_ms then
    since = now_ms
    local set = pcall('SET', BIRTH, history .. '|' .. text(now_ms))
    if failed(set) then
      return nil, refusal(set, BIRTH)
    end
  end
  return now_ms - tonumber(since)
end

-- Returns the least token that exceeds the floor, the fence and every token from before the server's time. Returns
-- false and why if there is none.
local function next_token(floor, now)
  local now_ms = math.floor(now / 1000)
  local ms, seq = now_ms, -1
  local function exceed(id)
    local other_ms, other_seq = numbers(id)
    if other_ms > ms or other_ms == ms and other_seq > seq then
      ms, seq = other_ms, other_seq
    end
    return other_ms
  end
  if exceed(floor) > now_ms + HOUR then
    return false, 'c'
  end
  local fence = pcall('GET', FENCE)
  if failed(fence) then
    return false, refusal(fence, FENCE)
  end
  -- Nonsense that somebody wrote is overwritten: no lock could be taken ever after. So is what lies further ahead than
  -- any token that was entered with, since a majority refuses such a floor: this clock, or its writer, was wrong.
  if fence and string.find(fence, '^%d+-%d+$') then
    exceed(numbers(fence) <= now_ms + HOUR and fence or text(now_ms + HOUR) .. '-0')
  end
  seq = seq + 1
  if seq > LAST_SEQ then
    ms, seq = ms + 1, 0
  end
  local token = text(ms) .. '-' .. text(seq)
  local set = pcall('SET', FENCE, token, 'PX', FENCE_KEPT + math.max(0, ms - now_ms))
  if failed(set) then
    return false, refusal(set, FENCE)
  end
  return token
end

