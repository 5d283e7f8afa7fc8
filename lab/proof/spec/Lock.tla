------------------------------- MODULE Lock -------------------------------
(***************************************************************************)
(* One lock on one server, or on a master with a replica.  Read it beside  *)
(* docs/protocol.md, whose words these are; README.md says how, and what   *)
(* is not in it.  A rule can be taken out: Keeps("Rule") is false if Off   *)
(* names it.  Rules have the names that lab/proof/tests/model gives them.  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Processes, Sharers,    \* who wants the lock; whose claims share it: readers, permits
  Limit,                 \* how many claims may share it at once
  Claims, Numbers,       \* how many claims a process makes; how many local holders a grant serves
  Ttl, GrantTtl,         \* the lease of an acquire, and of a grant through the queue
  Margin, Drift,         \* what a holder takes off a lease; how far a process's clock lags at most
  Budget,                \* for how long a claim may still be executed: its deadline
  Draws,                 \* how many tokens a tick of the server's clock is worth
  Horizon,               \* how far time goes
  Kills,                 \* whether a connection that was given up can be killed
  Natives,               \* whether a first attempt may be made without a script
  Window,                \* for how long at most K is left free now and then, for clients of other libraries; 0 for never
  Deaf,                  \* who may not be reached by the message of a grant, and is passed over then
  Loses,                 \* whether a replica may take over without the last writes
  Renews, Writes,        \* whether holders renew; whether they write to a resource
  Faults, Times,         \* which faults may strike, and how often each
  Ends,                  \* whether faults end, after which nothing is late
  Off                    \* the rules that are taken out

VARIABLES
  now, lag,              \* the server's clock; how far each process's clock is behind it
  server, replica,       \* what they keep: held (K), queue (with waiters), clock, until when K is left free
  history,               \* which master it is, as `master_replid` tells
  wire, back, stray,     \* requests and answers of each connection; what broken ones carried
  inbox,                 \* messages on their way to processes
  proc,                  \* what each process knows
  writes, resource,      \* writes on their way, and the newest that the resource accepted
  faults, calm,          \* how often each fault may still strike; whether they have ended
  seen                   \* what nobody knows, for judging: grants, and the newest section

vars == <<now, lag, server, replica, history, wire, back, stray, inbox, proc, writes, resource, faults, calm, seen>>
net  == <<wire, back, stray, inbox>>
data == <<server, replica, history>>
time == <<now, lag>>
rest == <<writes, resource, faults, calm>>

AllFaults == {"break", "miss", "twice", "crash", "restart", "flush", "promote", "revoke", "withdraw"}
Keeps(rule) == rule \notin Off
Max(a, b) == IF a > b THEN a ELSE b
\* Processes of one mode are alike: no action asks which of them it is.
Symmetry == Permutations(Sharers) \cup Permutations(Processes \ Sharers)
None == [kind |-> "none"]

(***************************************************************************)
(* A process's clock reads now - lag.  A slow one falls behind, by Drift   *)
(* at most while time goes to Horizon; a fast one only gives up too early. *)
(***************************************************************************)
Clock(p) == now - lag[p]

Strikes(fault) == faults[fault] > 0 /\ ~calm /\ faults' = [faults EXCEPT ![fault] = @ - 1]

Nobody == [held |-> {}, queue |-> <<>>, clock |-> 0, left |-> 0]
\* What is so of it at a later time: leases have ended.
At(s, t) == [s EXCEPT !.held = {l \in @ : l.ends > t}, !.left = IF @ > t THEN @ ELSE 0]
Idle(n) == [state |-> "idle", n |-> n, stamp |-> 0, asks |-> FALSE, open |-> FALSE, torn |-> FALSE, until |-> 0,
            confirmed |-> 0, deadline |-> 0, token |-> 0, turn |-> 0, number |-> 0]

Claim(p) == <<p, proc[p].n>>       \* its owner: no other claim ever has it
Waits(p) == proc[p].state = "waiting"
Holds(p) == proc[p].state = "holding"
Alive(p) == proc[p].state # "dead"
\* A holder reads its clock, not a flag.
Inside(p) == Holds(p) /\ (Clock(p) < proc[p].deadline \/ ~Keeps("DeadlineReadAtTake"))

(***************************************************************************)
(* THE STEPS: what the server does in one instant.  Each returns what is   *)
(* kept, the answer, the messages, and which of the actions it was.        *)
(***************************************************************************)
Shares(c) == c[1] \in Sharers
Mine(s, c) == \E l \in s.held : l.claim = c
Leave(s, c) == [s EXCEPT !.queue = SelectSeq(@, LAMBDA e : e.claim # c)]
Fits(s, c) == \/ s.held = {}
              \/ /\ Shares(c) /\ \A l \in s.held : Shares(l.claim)
                 /\ Cardinality(s.held) < Limit \/ ~Keeps("UnitsAreCounted")
              \/ ~Shares(c) /\ ~Keeps("WritersAreAlone") /\ \A l \in s.held : Shares(l.claim)

\* A draw from the clock: above every draw before it, and at least the time.
Draw(s) == Max(IF Keeps("ClockNeverFalls") THEN s.clock + 1 ELSE 1,
               IF Keeps("TokensFollowTime") THEN now * Draws ELSE 1)

\* Grants K.  Whoever joins others has their token, unless it is of another history.
Give(s, c, ttl) ==
  LET others == {l \in s.held : l.claim # c}
      newest == {l \in others : l.history = history \/ ~Keeps("HistoriesDrawAnew")}
      joins  == Shares(c) /\ newest # {}
      token  == IF joins THEN (CHOOSE l \in newest : \A k \in newest : k.token <= l.token).token ELSE Draw(s)
      turn   == IF joins THEN s.turn ELSE s.turn + 1
      before == {l.ends : l \in s.held \ others}
      ends   == IF before = {} THEN now + ttl
                ELSE LET old == CHOOSE e \in before : TRUE IN IF Keeps("RepeatRaises") THEN Max(old, now + ttl) ELSE old
      mine   == [claim |-> c, ends |-> ends, token |-> token, turn |-> turn, history |-> history]
  IN [s EXCEPT !.held = others \cup {mine}, !.clock = IF joins THEN @ ELSE token, !.turn = Max(@, turn), !.left = 0]

Lease(s, c) == CHOOSE l \in s.held : l.claim = c

\* It has not confirmed its place for a whole grant.
Gone(e) == now - e.confirmed > GrantTtl

\* Grants in order as long as the next one fits, to the caller in its answer, to the others by a message.
\* Whoever is not reached keeps its place, and the next one is tried.  While somebody has K alone nobody is looked for.
RECURSIVE Walk(_, _, _)
Walk(s, caller, deaf) ==
  IF s.queue = <<>> \/ \E l \in s.held : ~Shares(l.claim) THEN s
  ELSE LET e == Head(s.queue)
           t == [s EXCEPT !.queue = Tail(@)]
           g == Give(t, e.claim, IF e.claim = caller THEN Ttl ELSE GrantTtl)
           past == Walk([t EXCEPT !.over = @ \cup {e.claim}], caller, deaf)
       IN IF e.claim # caller /\ Gone(e) THEN Walk(t, caller, deaf)
          ELSE IF ~Fits(s, e.claim) THEN s                                            \* it blocks
          ELSE IF e.claim # caller /\ e.claim[1] \in deaf THEN [past EXCEPT !.queue = <<e>> \o @]
          ELSE Walk(IF e.claim = caller THEN g
                    ELSE [g EXCEPT !.told = @ \cup {[kind |-> "granted", claim |-> e.claim, stamp |-> e.stamp,
                                                     token |-> Lease(g, e.claim).token, turn |-> Lease(g, e.claim).turn]}],
                    caller, deaf)

\* While K is left free nobody of ours takes it.
LeftFree(s) == s.held = {} /\ now < s.left
MoveOn(s, caller, deaf) == IF LeftFree(s) THEN s ELSE Walk(s, caller, deaf)

Enter(s, m) ==
  LET entry == [claim |-> m.claim, stamp |-> m.stamp, confirmed |-> now]
      known == {i \in DOMAIN s.queue : s.queue[i].claim = m.claim}
  IN IF known = {} THEN [s EXCEPT !.queue = Append(@, entry)]
     ELSE [s EXCEPT !.queue[CHOOSE i \in known : TRUE] = entry]

Done(s, did, answer) == [server |-> s, did |-> did, answer |-> answer]

AcquireStep(s, m, deaf) ==
  LET granted(t) == [kind |-> "granted", claim |-> m.claim, stamp |-> m.stamp,
                     token |-> Lease(t, m.claim).token, turn |-> Lease(t, m.claim).turn]
      moved == MoveOn(Enter(s, m), m.claim, deaf)
      again == Give(Leave(s, m.claim), m.claim, Ttl)
  IN IF now > m.until /\ Keeps("SendsHaveDeadlines")
     THEN Done(s, "stale", [kind |-> "stale", claim |-> m.claim, stamp |-> m.stamp])
     ELSE IF Mine(s, m.claim) THEN Done(again, "repeat", granted(again))
     ELSE IF Mine(moved, m.claim) THEN Done(moved, "grant", granted(moved))
     ELSE Done(moved, IF LeftFree(s) THEN "meanwhile" ELSE "queue", [kind |-> "queued", claim |-> m.claim, stamp |-> m.stamp])

\* SET NX, which asks for no queue, and has no deadline.
NativeStep(s, m) ==
  LET taken == Give(s, m.claim, Ttl)
  IN IF s.held = {}
     THEN Done(taken, "native", [kind |-> "granted", claim |-> m.claim, stamp |-> m.stamp,
                                 token |-> Lease(taken, m.claim).token, turn |-> Lease(taken, m.claim).turn])
     ELSE Done(s, "busy", [kind |-> "busy", claim |-> m.claim, stamp |-> m.stamp])

RenewStep(s, m) ==
  IF Mine(s, m.claim)
  THEN LET l == Lease(s, m.claim)
       IN Done([s EXCEPT !.held = (@ \ {l}) \cup {[l EXCEPT !.ends = Max(@, now + Ttl)]}],
               "renew", [kind |-> "renewed", claim |-> m.claim, stamp |-> m.stamp])
  ELSE Done(s, "lost", [kind |-> "lost", claim |-> m.claim, stamp |-> m.stamp])

\* Release and withdraw are one call.  It moves the queue on also if K was not its own.
Freed(s, m) == [Leave(s, m.claim) EXCEPT !.held = {l \in @ : l.claim # m.claim}, !.left = IF Mine(s, m.claim) THEN 0 ELSE @]
Released(m) == [kind |-> "released", claim |-> m.claim, stamp |-> 0]
ReleaseStep(s, m, deaf) ==
  LET moved == MoveOn(Freed(s, m), None, deaf)
  IN Done(moved, IF moved.told = {} THEN "release" ELSE "hand-off", Released(m))

\* Kills the connections that were given up: what they carried is executed no more.
KillStep(s, m) == Done(s, "kill", None)

Now == [held |-> server.held, queue |-> server.queue, clock |-> server.clock, left |-> server.left, turn |-> seen.turn, told |-> {}, over |-> {}]

StepPast(m, deaf) ==
  LET s == Now
  IN CASE m.kind = "acquire" -> AcquireStep(s, m, deaf)
       [] m.kind = "native"  -> NativeStep(s, m)
       [] m.kind = "renew"   -> RenewStep(s, m)
       [] m.kind = "release" -> ReleaseStep(s, m, deaf)
       [] m.kind = "kill"    -> KillStep(s, m)
Step(m) == StepPast(m, {})

Keep(r) ==
  /\ server' = [held |-> r.server.held, queue |-> r.server.queue, clock |-> r.server.clock, left |-> r.server.left]
  /\ inbox' = inbox \cup r.server.told
  /\ seen' = [seen EXCEPT !.turn = r.server.turn]

\* The server has done `r` with the request `m`, the next of a connection.
Perform(p, m, r) ==
  /\ Keep(r)
  /\ wire' = [wire EXCEPT ![p] = Tail(@)]
  /\ back' = [back EXCEPT ![p] = IF Alive(p) /\ r.answer # None THEN Append(@, r.answer) ELSE @]
  /\ stray' = IF r.did = "kill" THEN [stray EXCEPT ![p] = {}] ELSE stray
  /\ UNCHANGED <<time, replica, history, proc, rest>>

\* The server executes the next request of a connection.
Execute(p, m, did) == LET r == Step(m) IN r.did = did /\ Perform(p, m, r)

NextOf(p) == IF wire[p] = <<>> THEN None ELSE Head(wire[p])
Grant(p)   == NextOf(p).kind = "acquire" /\ Execute(p, NextOf(p), "grant")     \* K was free, or has room, and nobody in front
Repeat(p)  == NextOf(p).kind = "acquire" /\ Execute(p, NextOf(p), "repeat")    \* K was its own already
Queue(p)   == NextOf(p).kind = "acquire" /\ Execute(p, NextOf(p), "queue")     \* it enters the queue, or confirms its place
QueueMeanwhile(p) == NextOf(p).kind = "acquire" /\ Execute(p, NextOf(p), "meanwhile")  \* the same, while K is left free
Stale(p)   == NextOf(p).kind = "acquire" /\ Execute(p, NextOf(p), "stale")     \* its deadline has passed
Native(p)  == NextOf(p).kind = "native"  /\ Execute(p, NextOf(p), "native")    \* K was free, whoever waits for it
Busy(p)    == NextOf(p).kind = "native"  /\ Execute(p, NextOf(p), "busy")      \* K is taken: the script is next
Renew(p)   == NextOf(p).kind = "renew"   /\ Execute(p, NextOf(p), "renew")
Lost(p)    == NextOf(p).kind = "renew"   /\ Execute(p, NextOf(p), "lost")      \* K is gone, or somebody else's
Free(p)    == NextOf(p).kind = "release" /\ Execute(p, NextOf(p), "release")
HandOff(p) == NextOf(p).kind = "release" /\ Execute(p, NextOf(p), "hand-off")  \* released and granted to who waits, in one step
Kill(p)    == NextOf(p).kind = "kill"    /\ Execute(p, NextOf(p), "kill")

\* Released, and left free for a moment although somebody waits.
LeaveFree(p) ==
  LET m == NextOf(p)
  IN /\ m.kind = "release" /\ Mine(server, m.claim) /\ ~Shares(m.claim) /\ Freed(Now, m).queue # <<>>
     /\ \E w \in 1..Window : Perform(p, m, Done([Freed(Now, m) EXCEPT !.left = now + w], "leave", Released(m)))

\* The queue moves on past some who are not reached.
PassOver(p) ==
  /\ NextOf(p).kind \in {"acquire", "release"}
  /\ \E deaf \in (SUBSET Deaf) \ {{}} :
       LET r == StepPast(NextOf(p), deaf) IN {c[1] : c \in r.server.over} = deaf /\ Perform(p, NextOf(p), r)

\* What a broken connection carried is executed late, and nobody hears the answer.
Late(p) ==
  \E m \in stray[p] :
    /\ Keep(Step(m))
    /\ stray' = [stray EXCEPT ![p] = @ \ {m}]
    /\ UNCHANGED <<time, replica, history, wire, back, proc, rest>>

(***************************************************************************)
(* A PROCESS: what it sends, and what it believes.                         *)
(***************************************************************************)
AcquireRequest(p, q) == [kind |-> "acquire", claim |-> <<p, q.n>>, stamp |-> q.stamp, until |-> q.until]

Sends(p, requests) == /\ wire' = [wire EXCEPT ![p] = @ \o requests]
                      /\ UNCHANGED <<back, stray, inbox>>

Becomes(p, q) == proc' = [proc EXCEPT ![p] = q]

Acquire(p) ==
  LET q == [Idle(proc[p].n + 1) EXCEPT !.state = "waiting", !.stamp = Clock(p), !.asks = TRUE, !.open = TRUE,
                                       !.until = Clock(p) + Budget]
  IN /\ proc[p].state = "idle" /\ proc[p].n < Claims
     /\ Becomes(p, q)
     /\ \/ Sends(p, <<AcquireRequest(p, q)>>)
        \* Nothing but the end of its connection keeps it from being executed late.
        \/ Natives /\ Kills /\ p \notin Sharers /\ Sends(p, <<[kind |-> "native", claim |-> <<p, q.n>>, stamp |-> q.stamp]>>)
     /\ UNCHANGED <<time, data, rest, seen>>

\* Whoever waits asks again now and then.
Ask(p) ==
  LET q == [proc[p] EXCEPT !.stamp = Clock(p), !.asks = TRUE, !.open = TRUE]
  IN /\ Waits(p) /\ ~proc[p].asks /\ Clock(p) > proc[p].stamp /\ Clock(p) <= proc[p].until
     /\ Keeps("Backstop")
     /\ Becomes(p, q) /\ Sends(p, <<AcquireRequest(p, q)>>)
     /\ UNCHANGED <<time, data, rest, seen>>

\* What ends a claim goes behind its other sends, or after their connection was closed, or after its deadline.
MayEnd(p) == ~proc[p].torn \/ Kills \/ Clock(p) > proc[p].until \/ ~Keeps("UndoneAfterDeadline")
EndOf(p) ==
  LET release == <<[kind |-> "release", claim |-> Claim(p)]>>
  IN IF proc[p].torn /\ Kills /\ Keeps("KilledBeforeUndo") THEN <<[kind |-> "kill", claim |-> Claim(p)]>> \o release
     ELSE release

EndClaim(p, others) ==
  LET sends == IF MayEnd(p) THEN EndOf(p) ELSE <<>>
  IN /\ Becomes(p, [Idle(proc[p].n) EXCEPT !.state = "ending", !.asks = sends # <<>>, !.open = proc[p].open,
                                           !.torn = proc[p].torn, !.until = proc[p].until])
     /\ wire' = [wire EXCEPT ![p] = IF Keeps("EndingsGoBehind") THEN @ \o sends ELSE sends \o @]
     /\ others

EndAgain(p) ==
  /\ proc[p].state = "ending" /\ ~proc[p].asks /\ MayEnd(p)
  /\ Becomes(p, [proc[p] EXCEPT !.asks = TRUE]) /\ Sends(p, EndOf(p))
  /\ UNCHANGED <<time, data, rest, seen>>

\* The caller goes, or its budget is over.
Withdraw(p) ==
  /\ Waits(p) /\ (faults.withdraw > 0 \/ Clock(p) > proc[p].until)
  /\ faults' = [faults EXCEPT !.withdraw = IF Clock(p) > proc[p].until THEN @ ELSE @ - 1]
  /\ EndClaim(p, UNCHANGED <<back, stray, inbox>>)
  /\ UNCHANGED <<time, data, writes, resource, calm, seen>>

Release(p) ==
  /\ Inside(p)
  /\ EndClaim(p, UNCHANGED <<back, stray, inbox>>)
  /\ UNCHANGED <<time, data, rest, seen>>

\* The deadline has passed: whatever it was doing, the claim still ends with a release.
Lose(p) ==
  /\ Holds(p) /\ Clock(p) >= proc[p].deadline
  /\ IF Keeps("ReleaseAfterLoss") THEN EndClaim(p, UNCHANGED <<back, stray, inbox>>)
     ELSE Becomes(p, Idle(proc[p].n)) /\ UNCHANGED net
  /\ UNCHANGED <<time, data, rest, seen>>

AskRenewal(p) ==
  /\ Renews /\ Inside(p) /\ ~proc[p].asks /\ Clock(p) > proc[p].stamp
  /\ Becomes(p, [proc[p] EXCEPT !.stamp = Clock(p), !.asks = TRUE])
  /\ Sends(p, <<[kind |-> "renew", claim |-> Claim(p), stamp |-> Clock(p)]>>)
  /\ UNCHANGED <<time, data, rest, seen>>

\* Sections have an order, and tokens must have the same.
Order(q) == q.turn * Numbers + q.number
Token(q) == q.token * (IF Keeps("GrantsOwnTheirNumbers") THEN Numbers ELSE 1) + q.number
Begins(q) ==
  LET one == [order |-> Order(q), token |-> Token(q)]
      top == seen.newest
  IN seen' = [seen EXCEPT !.newest = IF one.order >= top.order THEN one ELSE top,
                          !.fell = @ \/ (one.order > top.order /\ one.token <= top.token)
                                     \/ (one.order < top.order /\ one.token >= top.token)
                                     \/ (one.order = top.order /\ one.token # top.token)]

\* It believes until `sent + ttl - margin`, by its own clock.
Believes(p, m, ttl, asks) ==
  LET counted == IF m.kind = "granted" /\ ttl = GrantTtl /\ ~Keeps("CountedFromConfirmation") THEN proc[p].stamp ELSE m.stamp
      q == [proc[p] EXCEPT !.state = "holding", !.deadline = counted + ttl - Margin, !.token = m.token, !.turn = m.turn,
                           !.number = 0, !.confirmed = 0, !.asks = asks, !.open = asks]
  IN IF Clock(p) < q.deadline THEN Becomes(p, q) /\ Begins(q)
     ELSE Becomes(p, [proc[p] EXCEPT !.asks = asks, !.open = asks]) /\ UNCHANGED seen

\* The process hears the next answer of its connection.
Receive(p) ==
  /\ Alive(p) /\ back[p] # <<>>
  /\ LET m == Head(back[p])
         q == proc[p]
         drops == UNCHANGED <<stray, inbox>> /\ back' = [back EXCEPT ![p] = Tail(@)]
         hears == drops /\ UNCHANGED wire
         \* What was unanswered of the claim; while it ends, the release is.
         known == [q EXCEPT !.asks = @ /\ q.state = "ending", !.open = IF m.kind = "renewed" THEN @ ELSE FALSE]
     IN IF m.claim # Claim(p) THEN hears /\ UNCHANGED <<proc, seen>>
        ELSE CASE m.kind = "granted" /\ Waits(p) -> hears /\ Believes(p, m, Ttl, FALSE)
               [] m.kind = "queued" /\ Waits(p) ->
                    hears /\ Becomes(p, [known EXCEPT !.confirmed = m.stamp]) /\ UNCHANGED seen
               \* It asks by script at once.
               [] m.kind = "busy" /\ Waits(p) -> hears /\ Becomes(p, [known EXCEPT !.stamp = 0 - 1]) /\ UNCHANGED seen
               [] m.kind = "renewed" /\ Holds(p) ->
                    /\ hears /\ UNCHANGED seen
                    \* A deadline only rises, and nothing revives a lease after it.
                    /\ LET sent == IF Keeps("RenewalsCountFromSending") THEN m.stamp ELSE Clock(p)
                       IN Becomes(p, [known EXCEPT !.deadline = IF Clock(p) < @ THEN Max(@, sent + Ttl - Margin) ELSE @])
               [] m.kind = "lost" /\ Holds(p) -> EndClaim(p, drops) /\ UNCHANGED seen
               [] m.kind = "released" -> hears /\ Becomes(p, Idle(q.n)) /\ UNCHANGED seen
               [] OTHER -> hears /\ Becomes(p, known) /\ UNCHANGED seen
  /\ UNCHANGED <<time, data, rest>>

\* A message arrives.  It may be late, and it may come twice.
Hear(p) ==
  \E m \in inbox :
    /\ Alive(p) /\ m.claim = Claim(p)
    /\ \/ inbox' = inbox \ {m} /\ UNCHANGED faults
       \/ inbox' = inbox /\ Strikes("twice")
    /\ IF m.kind = "revoked"
       THEN IF Holds(p) THEN EndClaim(p, UNCHANGED <<back, stray>>) /\ UNCHANGED seen
            ELSE UNCHANGED <<wire, back, stray, proc, seen>>
       ELSE /\ UNCHANGED <<wire, back, stray>>
            /\ IF Waits(p) /\ (m.stamp >= proc[p].confirmed \/ ~Keeps("GrantsEchoStamps"))
               THEN Believes(p, IF Keeps("GrantsEchoStamps") THEN m
                                ELSE [m EXCEPT !.stamp = Max(@, proc[p].confirmed)], GrantTtl, proc[p].asks)
               ELSE UNCHANGED <<proc, seen>>
    /\ UNCHANGED <<time, data, writes, resource, calm>>

\* The process passes the lock on to its next caller, without the server: the next number of the grant.
LocalHandOff(p) ==
  LET q == [proc[p] EXCEPT !.number = @ + 1]
  IN /\ Inside(p) /\ p \notin Sharers /\ q.number < Numbers
     /\ Becomes(p, q) /\ Begins(q)
     /\ UNCHANGED <<time, data, net, rest>>

\* A holder writes with its token; the write arrives at any time.
Write(p) ==
  /\ Writes /\ Inside(p)
  /\ writes' = writes \cup {[token |-> Token(proc[p]), order |-> Order(proc[p])]}
  /\ UNCHANGED <<time, data, net, proc, resource, faults, calm, seen>>

Arrive ==
  \E w \in writes :
    /\ writes' = writes \ {w}
    /\ resource' = IF w.token >= resource.token \/ ~Keeps("FencesCompare")
                   THEN [token |-> w.token, order |-> w.order, stale |-> resource.stale \/ w.order < resource.order]
                   ELSE resource
    /\ UNCHANGED <<time, data, net, proc, faults, calm, seen>>

(***************************************************************************)
(* TIME, AND FAULTS.                                                       *)
(***************************************************************************)
\* Once calm, time waits for what is due: messages, timers, and holders, who are done before long.
Due(p) ==
  /\ Alive(p)
  /\ \/ wire[p] # <<>> \/ back[p] # <<>> \/ \E m \in inbox : m.claim = Claim(p)
     \/ proc[p].state = "idle" /\ proc[p].n < Claims
     \/ Waits(p) /\ ~proc[p].asks /\ Clock(p) > proc[p].stamp /\ Keeps("Backstop")
     \/ Holds(p)
     \/ proc[p].state = "ending" /\ ~proc[p].asks /\ MayEnd(p)

Running == At(server, now + 1).held

Pass ==
  /\ now' = now + 1
  /\ lag' \in {f \in [Processes -> 0..Drift] : \A p \in Processes : f[p] \in {lag[p], lag[p] + 1}}
  /\ server' = At(server, now + 1)
  /\ UNCHANGED <<replica, history, net, proc, rest, seen>>

\* Where faults end, they do so before a grant through the queue would: what is later is the same again.
MayPass == /\ now < Horizon
           /\ IF calm THEN \A p \in Processes : ~Due(p) ELSE Ends => now < GrantTtl
Tick   == MayPass /\ Running = server.held /\ Pass
Expire == MayPass /\ Running # server.held /\ Pass      \* a lease ends; nobody watches for it

\* What the processes know when their connections break.
Torn(q) == [q EXCEPT !.torn = @ \/ q.open, !.open = FALSE, !.asks = FALSE]

Break(p) ==
  /\ Strikes("break") /\ Alive(p) /\ (wire[p] # <<>> \/ back[p] # <<>>)
  /\ stray' = [stray EXCEPT ![p] = @ \cup {wire[p][i] : i \in DOMAIN wire[p]}]
  /\ wire' = [wire EXCEPT ![p] = <<>>] /\ back' = [back EXCEPT ![p] = <<>>]
  /\ Becomes(p, IF proc[p].state = "ending" /\ ~Keeps("ReleasesAreRepeated") THEN Idle(proc[p].n) ELSE Torn(proc[p]))
  /\ UNCHANGED <<time, data, inbox, writes, resource, calm, seen>>

LoseStray(p) == /\ calm /\ stray[p] # {} /\ stray' = [stray EXCEPT ![p] = {}]
                /\ UNCHANGED <<time, data, wire, back, inbox, proc, rest, seen>>

Miss == /\ Strikes("miss") /\ \E m \in inbox : inbox' = inbox \ {m}
        /\ UNCHANGED <<time, data, wire, back, stray, proc, writes, resource, calm, seen>>

Crash(p) ==
  /\ Strikes("crash") /\ Alive(p)
  /\ Becomes(p, [Idle(proc[p].n) EXCEPT !.state = "dead"])
  /\ stray' = [stray EXCEPT ![p] = @ \cup {wire[p][i] : i \in DOMAIN wire[p]}]
  /\ wire' = [wire EXCEPT ![p] = <<>>] /\ back' = [back EXCEPT ![p] = <<>>]
  /\ inbox' = {m \in inbox : m.claim[1] # p}
  /\ UNCHANGED <<time, data, writes, resource, calm, seen>>

\* The server ends, and with it all connections and what they carried.
Ended(kept) ==
  /\ server' = kept
  /\ wire' = [p \in Processes |-> <<>>] /\ back' = wire' /\ inbox' = {}
  /\ stray' = [p \in Processes |-> {}]
  /\ proc' = [p \in Processes |-> IF Alive(p) THEN Torn(proc[p]) ELSE proc[p]]
  /\ now' = now + 1 /\ now < Horizon
  /\ UNCHANGED <<lag, writes, resource, calm, seen>>

Restart == Strikes("restart") /\ Ended(At(server, now + 1)) /\ UNCHANGED <<replica, history>>
Flush   == Strikes("flush") /\ Ended(Nobody) /\ UNCHANGED <<replica, history>>

Replicate == /\ faults.promote > 0 /\ replica # server /\ replica' = server
             /\ UNCHANGED <<time, server, history, net, proc, rest, seen>>
Promote ==
  /\ Strikes("promote") /\ (Loses \/ replica = server)
  /\ Ended(At(replica, now + 1))
  /\ history' = history + 1 /\ UNCHANGED replica

\* An operator takes the lock away: tells the holder, and releases with its name.
Revoke ==
  \E l \in server.held :
    LET r == Step([kind |-> "release", claim |-> l.claim])
    IN /\ Strikes("revoke")
       /\ server' = [held |-> r.server.held, queue |-> r.server.queue, clock |-> r.server.clock, left |-> r.server.left]
       /\ seen' = [seen EXCEPT !.turn = r.server.turn]
       /\ inbox' = inbox \cup r.server.told \cup {[kind |-> "revoked", claim |-> l.claim]}
       /\ UNCHANGED <<time, replica, history, wire, back, stray, proc, writes, resource, calm>>

FaultsEnd == /\ Ends /\ ~calm /\ calm' = TRUE
             /\ UNCHANGED <<time, data, net, proc, writes, resource, faults, seen>>

(***************************************************************************)
(* THE WHOLE, AND WHAT IS CLAIMED OF IT.                                   *)
(***************************************************************************)
Init ==
  /\ now = 0 /\ lag = [p \in Processes |-> 0]
  /\ server = Nobody /\ replica = Nobody /\ history = 0
  /\ wire = [p \in Processes |-> <<>>] /\ back = wire /\ stray = [p \in Processes |-> {}] /\ inbox = {}
  /\ proc = [p \in Processes |-> Idle(0)]
  /\ writes = {} /\ resource = [token |-> 0, order |-> 0, stale |-> FALSE]
  /\ faults = [fault \in AllFaults |-> IF fault \in Faults THEN Times ELSE 0] /\ calm = FALSE
  /\ seen = [turn |-> 0, newest |-> [order |-> 0, token |-> 0], fell |-> FALSE]

Next ==
  \/ \E p \in Processes :
       \/ Acquire(p) \/ Ask(p) \/ Withdraw(p) \/ Release(p) \/ Lose(p) \/ EndAgain(p) \/ AskRenewal(p)
       \/ LocalHandOff(p) \/ Write(p) \/ Receive(p) \/ Hear(p)
       \/ Grant(p) \/ Repeat(p) \/ Queue(p) \/ Stale(p) \/ Renew(p) \/ Lost(p) \/ Free(p) \/ HandOff(p) \/ Kill(p) \/ Late(p)
       \/ Native(p) \/ Busy(p) \/ LeaveFree(p) \/ QueueMeanwhile(p) \/ PassOver(p)
       \/ Break(p) \/ LoseStray(p) \/ Crash(p)
  \/ Arrive \/ Tick \/ Expire
  \/ Miss \/ Restart \/ Flush \/ Replicate \/ Promote \/ Revoke \/ FaultsEnd

\* What can happen goes on happening.  After FaultsEnd nothing is late: see Due.
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

Believers == {p \in Processes : Inside(p)}

NoTwoHolders ==
  \/ Cardinality(Believers) <= 1
  \/ Believers \subseteq Sharers /\ Cardinality(Believers) <= Limit

TokensGrow == ~seen.fell

NothingOlderPasses == ~resource.stale

\* Once its release was answered, a claim has the lock no more, nor ever again.
ReleasedStaysReleased ==
  \A l \in server.held : proc[l.claim[1]].n = l.claim[2] /\ proc[l.claim[1]].state # "idle"

Served(p) == proc[p].state = "dead" \/ (proc[p].state = "idle" /\ proc[p].n = Claims)
WhoWaitsIsServed == calm ~> \A p \in Processes : Served(p)

Shape ==
  /\ \A p \in Processes : proc[p].state \in {"idle", "waiting", "holding", "ending", "dead"}
  /\ \A p \in Processes : Len(wire[p]) <= 4 /\ proc[p].n <= Claims
  /\ \A l \in server.held : l.ends > now /\ l.token <= server.clock
  /\ \A i, j \in DOMAIN server.queue : i # j => server.queue[i].claim # server.queue[j].claim
=============================================================================
