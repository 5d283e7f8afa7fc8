"""Locks in one queue with the Rust library, written from docs/protocol.md alone. Needs redis-py.

    client = Client("redis://127.0.0.1:6379")
    with client.acquire("lock:report", ttl=10_000, wait=30.0) as lock:
        write_report(fencing_token=lock.token)      # stop when lock.lost.is_set()

Exclusive locks on one server: a place in the queue, direct hand-off, fencing tokens, renewal. Claims of other modes wait in
the same queue and are let past. Callers of one process do not pass a lock on among themselves: each has a claim.
"""

import os
import queue
import random
import secrets
import socket
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# The shared part of the two steps. KEYS: the lock, its queue, its waiters, the clock.
LIBRARY = r"""
local call, pcall, K, QUEUE, WAITERS, CLOCK = redis.call, redis.pcall, unpack(KEYS)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local function int(number) return string.format('%d', number) end
local function numbers(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local function failed(answer) return type(answer) == 'table' and answer.err end

local function read()
  local value = call('GETRANGE', K, 0, 511)
  return (value ~= '' or call('EXISTS', K) == 1) and value
end
local function members(...)
  local owners = pcall('ZRANGE', QUEUE, ...)
  return failed(owners) and {} or owners
end
local function is_of(value, owner) return value and string.sub(value, 1, 33) == owner .. '|' end
local function leave(owner) pcall('ZREM', QUEUE, owner) pcall('HDEL', WAITERS, owner) end
local function keep(key, ms) if call('PTTL', key) < ms then pcall('PEXPIRE', key, int(ms)) end end

local function draw(floor)
  local floor_ms, floor_seq = numbers(floor)
  if floor_ms > now / 1000 + 3600000 then return nil, 'c' end
  local id = pcall('XADD', CLOCK, 'MAXLEN', '~', now % 1000 == 0 and '0' or '1', '*', 'k', 'v')
  if failed(id) then return nil, id.err end
  local ms, seq = numbers(id)
  if seq > 8191 or ms < floor_ms or ms == floor_ms and seq <= floor_seq then
    id = pcall('XADD', CLOCK, int(math.max(ms, floor_ms) + 1) .. '-0', 'k', 'v')
  end
  return not failed(id) and id or nil, failed(id)
end

local function take(owner, ttl, floor, tail, passing)
  local token, why = draw(floor)
  if not token then return nil, why end
  local set = pcall('SET', K, owner .. '|' .. int(now / 1000) .. '|' .. tail .. passing, 'PX', ttl)
  return not failed(set) and token or nil, failed(set)
end

local function entry_of(owner)
  local text = #owner == 32 and not string.find(owner, '%X') and pcall('HGET', WAITERS, owner)
  if type(text) ~= 'string' or #text > 2048 then return end
  local inbox, stamp, confirmed, reach, grant_ttl, mode, floor, tail =
    string.match(text, '^([^|]*)|(%d+)|(%d+)|(%d)|(%d+)|([s%d/]-)|?(%d+%-%d+)|(.*)$')
  if not inbox or tonumber(grant_ttl) > 3600000 or confirmed - now > 3600000000 then return end
  return { inbox = inbox, stamp = stamp, confirmed = confirmed, reach = reach, grant_ttl = grant_ttl, shares = mode ~= '',
    floor = floor, tail = tail, gone = now - confirmed > grant_ttl * 1000 }
end

-- Until when K is left free, and until when a client of another library is expected.
local function others()
  local known = pcall('HGET', WAITERS, 'others')
  local window, foreign = string.match(type(known) == 'string' and known or '', '^(%d+)|(%d+)$')
  window, foreign = tonumber(window) or 0, tonumber(foreign) or 0
  return window - now <= 20000 and window or 0, foreign - now <= 30000000 and foreign or 0
end
local function expect(window, foreign)
  pcall('HSET', WAITERS, 'others', int(window) .. '|' .. int(foreign))
  keep(WAITERS, math.ceil((math.max(window, foreign) - now) / 1000))
end

-- Tells a process. Returns whether anybody heard it.
local function tell(inbox, message)
  local listening = pcall('PUBSUB', 'NUMSUB', inbox)
  local heard = not failed(listening) and listening[2] > 0 and pcall('PUBLISH', inbox, message)
  return type(heard) == 'number' and heard > 0
end
local function call_next()
  for _, owner in ipairs(members(0, 31)) do
    local entry = entry_of(owner)
    if entry and tell(entry.inbox, owner .. '|again') then return end
  end
end

-- Grants K, which is free, to the first that can be reached. Returns 'caller' if that is the caller, 'taken' if somebody
-- has K or is to ask for it, or nil.
local function walk(caller, passing)
  for _, owner in ipairs(members('-inf', '(0', 'BYSCORE')) do leave(owner) end
  for _, owner in ipairs(members(0, 31)) do
    local entry = entry_of(owner)
    if owner == caller then
      return 'caller'
    elseif not entry or entry.gone then
      leave(owner)
    elseif entry.shares then
      tell(entry.inbox, owner .. '|again')
      return 'taken'
    else
      local token, why = take(owner, entry.grant_ttl, entry.floor, entry.tail, passing)
      if why == 'c' then
        leave(owner)
      elseif not token then
        return
      else
        local message = table.concat({ owner, token, entry.grant_ttl, entry.stamp, K }, '|')
        if tell(entry.inbox, message) or entry.reach == '2' then
          leave(owner)
          return 'taken'
        end
        call('DEL', K)
        local words = { entry.inbox, entry.stamp, entry.confirmed, '1', entry.grant_ttl, entry.floor, entry.tail }
        call('HSET', WAITERS, owner, table.concat(words, '|'))
      end
    end
  end
end
"""

# ARGV: owner, ttl, deadline, tail, stamp, grant_ttl, inbox (empty: no place in the queue), floor.
ACQUIRE = LIBRARY + r"""
local owner, ttl, deadline, tail, stamp, grant_ttl, inbox, floor = unpack(ARGV)
if now > tonumber(deadline) then return { int(now), 'stale' } end
local function granted(token, why) return { int(now), token and 'granted' or why == 'c' and 'floor' or 'failed', token or why } end
local value = read()
if is_of(value, owner) then
  local token, why = draw(floor)
  if token then keep(K, tonumber(ttl)) end
  leave(owner)
  return granted(token, why)
end
local left = 10
if not value then
  local window, foreign = others()
  if window > now then
    left = math.ceil((window - now) / 1000)
  else
    if foreign > now then expect(0, foreign) else pcall('HDEL', WAITERS, 'others') end
    if walk(owner, '') ~= 'taken' then
      local token, why = take(owner, ttl, floor, tail, '')
      if token then leave(owner) end
      return granted(token, why)
    end
    value = read()
  end
elseif string.byte(value, 33) ~= 124 then
  local _, foreign = others()
  if foreign - now < 15000000 then expect(0, now + 30000000) end
end
if value then left = call('PTTL', K) end
if inbox == '' then return { int(now), 'held', int(left), value or '' } end
local known, place = call('HGET', WAITERS, owner), tonumber(call('ZSCORE', QUEUE, owner) or -1)
local reach = known and place >= 0 and string.match(known, '^[^|]*|[^|]*|[^|]*|(%d)')
local last = tonumber(call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')[2] or 0)
if not reach then
  if value and string.sub(value, 1, 6) == 'shared' and last <= 0 then
    for _, holder in ipairs(members('-inf', '(0', 'BYSCORE')) do
      local entry = entry_of(holder)
      if entry then tell(entry.inbox, 'w|' .. holder .. '|' .. K) end
    end
  end
  call('ZADD', QUEUE, int(last > now + 86400000000 and now or math.max(now, last + 1)), owner)
end
reach = reach == '1' and '2' or reach or '0'
call('HSET', WAITERS, owner, table.concat({ inbox, stamp, int(now), reach, grant_ttl, floor, tail }, '|'))
keep(QUEUE, 30000)
keep(WAITERS, 30000)
return { int(now), 'queued', int(left), value or '' }
"""

# ARGV: owner. Frees the lock or leaves the queue, and passes on what became free.
RELEASE = LIBRARY + r"""
local owner, value = ARGV[1], read()
leave(owner)
local mine = is_of(value, owner)
if mine then call('DEL', K) end
if mine and call('EXISTS', QUEUE) == 1 then
  local _, foreign = others()
  local since, passing = string.match(value, '^%x+|(%d+)|%d+|[^|]*|%d+|[^|]*|[^|]*|?(%d*)$')
  local known = now < foreign
  local began = math.min(tonumber(passing) or known and since and since * 1000 or now, now)
  if now - began >= (known and 100000 or 1000000) then
    expect(now + (known and 20000 or 10000), foreign)
    call_next()
  else
    walk('', '|' .. int(began))
  end
elseif not value and others() < now then
  walk('', '')
end
return mine and 1 or 0
"""

# ARGV: owner, ttl.
RENEW = r"""
if string.sub(redis.call('GETRANGE', KEYS[1], 0, 32), 1, 33) ~= ARGV[1] .. '|' then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
"""


def nanos():
    """A clock that counts while the machine sleeps, where there is one."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def deadline_of(sent, ttl):
    """Until when a lease may be believed that was granted for so many ms by a command sent then."""
    return sent + int((ttl - max(ttl / 100, 2)) * 1e6)


def keys_of(key):
    opened = key.find("{")
    tagged = opened >= 0 and key.find("}", opened + 1) > opened + 1
    beside = key + ":@" if tagged else "{" + key + "}@"
    return [key, beside + "queue", beside + "waiters", "distributed-lock:clock"]


def number_of(token):
    ms, seq = token.split("-")[:2]
    return (int(ms) * 8192 + int(seq)) * 128


class Lock:
    """A lock that is held. `lost` is set when it no longer is."""

    def __init__(self, client, key, owner, ttl, token, sent, granted_for):
        self.client, self.key, self.owner, self.ttl, self.token = client, key, owner, ttl, token
        self.lost, self.deadline = threading.Event(), deadline_of(sent, granted_for)
        left = (self.deadline - nanos()) if granted_for < ttl else ttl * 1_000_000
        self.renew_at = nanos() + left // 3

    def release(self):
        self.client.held.pop(self.owner, None)
        return self.client.end(self.key, self.owner)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Client:
    def __init__(self, url, timeout=1.0):
        self.timeout = timeout
        options = dict(decode_responses=True, encoding_errors="replace", socket_timeout=timeout, retry=Retry(NoBackoff(), 0))
        self.redis = redis.Redis.from_url(url, **options)
        self.scripts = [self.redis.register_script(text) for text in (ACQUIRE, RELEASE, RENEW)]
        self.inbox = "distributed-lock:inbox:" + secrets.token_hex(16)
        self.listens, self.waiting, self.held, self.floor = threading.Event(), {}, {}, "0-0"
        self.tail = f"{socket.gethostname()[:64]}|{os.getpid()}|queue_lock.py|".replace("\n", "_")
        seconds, micros = self.redis.time()
        self.server_time = seconds * 1_000_000 + micros, nanos()
        for work in self._listen, self._renew:
            threading.Thread(target=work, daemon=True).start()

    def acquire(self, key, ttl=30_000, wait=30.0):
        """Waits for a lock of `ttl` ms. Raises TimeoutError."""
        owner, news, budget_ends = secrets.token_hex(16), queue.SimpleQueue(), nanos() + int(wait * 1e9)
        self.waiting[owner], confirmed, tries = news, 0, 0
        try:
            while True:
                sent, tries, answer = nanos(), tries + 1, ["unknown"]
                try:
                    answer = self._ask(key, owner, ttl, sent, budget_ends)
                except redis.RedisError:
                    pass
                if answer[0] == "granted":
                    return self._begin(key, owner, ttl, answer[1], sent, ttl)
                if answer[0] == "floor":
                    raise RuntimeError("a token lies more than an hour ahead of the server's time")
                if answer[0] in ("held", "queued"):
                    confirmed = sent
                pause = random.uniform(1, min(250, 10 * 2 ** min(tries, 5)))
                if answer[0] == "queued" and (answer[2] == "" or answer[2][32:33] == "|"):
                    pause = min(min(ttl, 3000) / 3, 1000)
                    if int(answer[1]) >= 0:
                        pause = min(pause, int(answer[1]) + random.uniform(1, 20))
                until = min(sent + int(pause * 1e6), budget_ends)
                while (left := until - nanos()) > 0:
                    try:
                        grant = news.get(timeout=left / 1e9)
                    except queue.Empty:
                        break
                    if grant is None:
                        break
                    token, grant_ttl, stamp = grant
                    if stamp < confirmed:
                        continue
                    if deadline_of(stamp, grant_ttl) - nanos() <= grant_ttl * 1e6 / 3:
                        break
                    return self._begin(key, owner, ttl, token, stamp, grant_ttl)
                if nanos() >= budget_ends:
                    raise TimeoutError(key)
        except BaseException:
            self.end(key, owner)
            raise
        finally:
            self.waiting.pop(owner, None)

    def _ask(self, key, owner, ttl, sent, budget_ends):
        # The server's deadline ends with the wait for the reply. A command sent later cannot meet a late effect of this call.
        read, received = self.server_time
        within = max(0, min(self.timeout * 1e9, budget_ends - sent))
        deadline = read + (sent - received + int(within)) // 1000
        inbox = self.inbox if self.listens.is_set() else ""
        arguments = [owner, ttl, deadline, f"{ttl}|{self.tail}", sent, min(ttl, 3000), inbox, self.floor]
        now, *answer = self.scripts[0](keys=keys_of(key), args=arguments)
        self.server_time = int(now), nanos()
        return answer

    def _begin(self, key, owner, ttl, token, sent, granted_for):
        self.floor = max(self.floor, token, key=number_of)
        lock = self.held[owner] = Lock(self, key, owner, ttl, number_of(token), sent, granted_for)
        return lock

    def end(self, key, owner):
        """Ends a claim, whatever has become of it. Returns whether it had the lock; None if that is not known yet."""
        try:
            return self.scripts[1](keys=keys_of(key), args=[owner]) == 1
        except redis.RedisError:
            threading.Timer(self.timeout, self.end, (key, owner)).start()

    def _listen(self):
        while True:
            try:
                with self.redis.pubsub() as channels:
                    channels.subscribe("distributed-lock:inbox:revoked", self.inbox)
                    while True:
                        message = channels.get_message(timeout=1.0)
                        if message and message["type"] == "message":
                            self._hear(message["channel"], message["data"].split("|", 4))
                        elif message and message["channel"] == self.inbox:
                            # From now on. Earlier messages are lost.
                            self.listens.set()
                            for news in list(self.waiting.values()):
                                news.put(None)
            except redis.RedisError:
                self.listens.clear()
                time.sleep(0.1)

    def _hear(self, channel, words):
        if channel != self.inbox:
            if words[0] in self.held:
                self.held[words[0]].lost.set()
        elif words[1] == "again" and words[0] in self.waiting:
            self.waiting[words[0]].put(None)
        elif len(words) == 5:
            owner, token, grant_ttl, stamp, key = words
            if owner in self.waiting:
                self.waiting[owner].put((token, int(grant_ttl), int(stamp)))
            elif owner not in self.held:
                self.end(key, owner)

    def _renew(self):
        while True:
            time.sleep(0.02)
            for lock in list(self.held.values()):
                sent = nanos()
                if sent >= lock.deadline:
                    lock.lost.set()
                if lock.lost.is_set() or sent < lock.renew_at:
                    continue
                try:
                    if self.scripts[2](keys=[lock.key], args=[lock.owner, lock.ttl]) == 0:
                        lock.lost.set()
                    else:
                        lock.deadline = max(lock.deadline, deadline_of(sent, lock.ttl))
                        lock.renew_at = sent + lock.ttl * 1_000_000 // 3
                except redis.RedisError:
                    lock.renew_at = nanos() + 100_000_000
