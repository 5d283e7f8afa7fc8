-- The contents of a lock's keys, and each number, name and pattern that more than one part uses. `script.rs` replaces each name
-- that is defined here by its value, in every script. As variables they would cost every call: Lua makes room for each variable
-- that a function uses, even if the function is not called.
--
-- KEYS     of one lock:
--          the lock K: a string `owner|since|ttl|host|pid|site|lock name`, since being server ms; then
--          `|passing`, if K passed on from another claim: since when it has, server us
--          the queue of K: owners by order of arrival, a sorted set
--          the waiters of K: by owner, all that a grant needs, a hash of
--          `inbox|stamp|confirmed|reach|grant_ttl|floor|ttl|host|pid|site|lock name`,
--          with `s units/limit|` before the floor for a claim that shares K
--          reach is 0 at first, 1 once passed over, 2 when it asked again after that; confirmed lies ahead of the time if
--          the claim sleeps: so far that it is gone after three of its pauses;
--          and by the name `others`, `window|foreign`: until when K is left free, and until when a client of
--          another library is expected, both server us
--          the clock: a stream, of which only the ids matter
--
--          While claims share K it is in a phase: a string `shared` and 26 digits, the units in use, then
--          `|token|ttl|host|pid|site|lock name` of the claim that began it. The token is `ms-seq-number`, and every holder has
--          the same. Then `|history`, a number for the history of this server when the token was drawn. Then
--          `|ms-seq-number` if the phase outlived a failover: the token of before, which its earlier holders keep.
--          Older versions stop reading behind the name, so new fields stand there. Holders stand in the queue of K
--          with a negative score: their leases end at that many ms of server time.
--
-- Returns  what the step says that follows.
--
-- Atomic, because the step is.

-- How far the clock may be set ahead of the server's time, ms, for a token known from elsewhere; and the longest lease that
-- the queue grants.
local HOUR = 3600000
-- How far ahead of the server's time the queue may reach, ms. A score beyond it was written by no claim, or by one with a lease
-- of more than a day, which takes a closer look.
local DAY = 86400000
-- No key outlives its processes: a queue without a confirmation expires after so many ms.
local QUEUE_KEPT = 30000

-- A claim may sleep after so long in the queue, us: it then asks seldom, and confirms a grant. The first so many claims that can
-- be reached watch the lock. The others share a time to ask, so many at a time: the claim at position p asks every p-th part of it.
-- A claim sleeps for at most so many of these times.
local ASLEEP_AFTER = 3000000
local WATCHERS = 2
local SLEEPERS = 20
local LONGEST_SLEEP = 30

-- The greatest id of the clock of which a token of 63 bits can be made, and the greatest number behind it in a phase.
local LAST_MS = 8796093022206
local LAST_SEQ = 8191
local LAST_NUMBER = 127
-- Numbers of Lua are exact up to this one.
local EXACT = 9007199254740992
-- The most units there can be, the last byte of the longest value, and the longest entry.
local MOST_UNITS = 4294967295
local LONGEST_VALUE = 543
local LONGEST_ENTRY = 2048

-- Every so many us, by the server's time, a draw also has the clock's old entries taken out, all or blocks of them. Where each
-- command counts, it is looked for blocks only now and then too.
local EMPTIED_EVERY = 1000
local TRIMMED_EVERY = 50

-- How many entries one move looks at; what follows is the next one's work.
local WALK = 32
-- How many entries one script takes out at most: while it runs, the server serves nobody else.
local MOST = 4096
-- How many of them one command takes out, which Lua passes on its stack.
local AT_ONCE = 128
-- How many leases are looked at when units are counted.
local COUNTED = 1000

-- Clients of other libraries poll K, and a lock that passes from claim to claim is never free. So after a
-- while it is left free for a moment before it passes on, us: sooner and longer if one of them had K within
-- half a minute, else just so that one can be found.
local OTHERS = 'others'
local EXPECTED = 30000000
local KNOWN_PASSES = 100000
local KNOWN_WINDOW = 20000
local UNKNOWN_PASSES = 1000000
local UNKNOWN_WINDOW = 10000

-- An entry of the waiters: inbox, stamp, confirmed, reach, grant_ttl, mode, floor, tail. A claim that wants K for itself has no
-- mode, and for that the bar behind it may be missing. `pack_entry` of entry.lua writes what this reads.
local ENTRY = '^([^|]*)|(%d+)|(%d+)|(%d)|(%d+)|([s%d/]-)|?(%d+%-%d+)|(.*)$'
-- The same of a claim that wants K for itself, for who has no time to look at anything else: without reach and mode, and with
-- the floor in two numbers.
local ENTRY_ALONE = '^([^|]*)|(%d+)|(%d+)|%d|(%d+)|(%d+)-(%d+)|(.*)$'
-- The same of one that may have to be woken, unless it was passed over: inbox, confirmed, grant_ttl.
local ENTRY_WATCHING = '^([^|]*)|%d+|(%d+)|[02-9]|(%d+)|%d+%-%d+|'
-- The same of one that shares K: its units.
local ENTRY_SHARING = '^[^|]*|%d+|%d+|%d|%d+|s(%d+)/'
-- A ticket: stamp, grant_ttl, inbox; then for how long the claim may sleep at a time, ms, if it may.
local TICKET = '^(%d+)|(%d+)|([^|]*)|?(%d*)$'
-- A mode that shares: units, limit.
local SHARING = '^s(%d+)/(%d+)$'

-- How a phase begins, by the units in use.
local PHASE_HEAD = 'shared%026d'
-- A phase: the units in use; ms, seq and number of its token. Then what stands behind the name of the lock: the number of the
-- history, the token of before.
local PHASE = '^shared(%d+)|(%d+)%-(%d+)%-(%d+)[%d-]*|'
local PHASE_DRAWN_IN = '^[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|(%d*)|?([%d-]*)'

-- The byte behind the owner in a value of ours, and behind the units of a phase: a bar.
local BAR = 124

-- The answer if a command was refused, and so was the command that takes back the work before it. The caller then undoes it. It is
-- not an error of the server, which would say that nothing was done.
local HALFWAY = 'eHALFWAY it could be done neither wholly nor not at all'
-- The answer if there is more to take out than one script may take the time for, where nobody asks again by itself.
local CLEARING = 'eCLEARING more leases have ended than can be taken out at once'
