------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Whether what a store logged is a behaviour of Lock.tla.  Steps.tla has  *)
(* the logs, one for each key of a run; TRACE.md says how a log is read.   *)
(* Each logged step must be an action of Lock.tla that leads to what the   *)
(* log says lies in the store then.  Between two of them the processes do  *)
(* what nobody logged: they send, they hear, they end.                     *)
(***************************************************************************)
EXTENDS Lock, Steps

CONSTANTS
  Longest,               \* how long a step of a server may take on a busy machine
  Slack,                 \* by how much times may differ that one step reads, or that are told to a tick
  Number                 \* the step that must not be reached, where a log is to be told

VARIABLES
  key, at,               \* which log, and which of its steps is next
  inside,                \* the claims whose callers have entered and not left, as they wrote down
  did                    \* the action of Lock.tla that happened

log == <<key, at, inside>>
all == <<vars, log, did>>

More == at <= Len(Logs[key])
E == Logs[key][at]

\* The clock goes on to the next step: as many ticks as that is.  When a lease ended the log says, before the step that noticed: the
\* store decides that by the time at which a step began, and a step that waits may read a later one.
LateLease == E.kind = "store" /\ \E l \in server.held : E.now > l.ends + IF "Queue" \in E.acts THEN Longest ELSE Slack
Advance ==
  /\ More /\ now < E.now /\ ~LateLease
  /\ now' = E.now /\ did' = "Tick"
  /\ UNCHANGED <<lag, server, replica, history, net, proc, rest, seen, log>>

\* When a step happened at the latest.  A step that frees and grants nothing logs no time: it came before the next step that has one.
Timed == {i \in at + 1..Len(Logs[key]) : Logs[key][i].kind = "store" /\ "Free" \notin Logs[key][i].acts}
Latest == IF "Free" \notin E.acts THEN now
          ELSE IF Timed = {} THEN Horizon ELSE Logs[key][CHOOSE i \in Timed : \A j \in Timed : i <= j].now

\* Whether a waiter was gone, where clocks leave it open: who was neither granted nor kept.
GoneAsLogged(e) ==
  \/ now - e.confirmed > GrantTtl + Slack
  \/ Latest - e.confirmed >= GrantTtl - Slack /\ e.claim \notin E.held /\ \A i \in DOMAIN E.queue : E.queue[i] # e.claim

Timely == More /\ now >= E.now

\* Other locks of the server draw from its clock.
Elsewhere ==
  /\ Timely /\ E.kind = "store" /\ server.clock + 1 < E.token
  /\ server' = [server EXCEPT !.clock = E.token - 1]
  /\ did' = "Elsewhere"
  /\ UNCHANGED <<time, replica, history, net, proc, rest, seen, log>>

(***************************************************************************)
(* What is logged.                                                         *)
(***************************************************************************)
Named(name, p) ==
  CASE name = "Grant" -> Grant(p)
    [] name = "Repeat" -> Repeat(p)
    [] name = "Queue" -> Queue(p)
    [] name = "Renew" -> Renew(p)
    [] name = "Free" -> Free(p)
    [] name = "HandOff" -> HandOff(p)
    [] name = "Native" -> Native(p)
    [] name = "PassOver" -> PassOver(p)
    [] name = "LeaveFree" -> LeaveFree(p)
    [] name = "QueueMeanwhile" -> QueueMeanwhile(p)

Near(a, b) == a - b <= Slack /\ b - a <= Slack

\* What lies in the store is what the log says.
AsLogged(s) ==
  /\ {l.claim : l \in s.held} = E.held
  /\ \A l \in s.held : l.token = E.token /\ Near(l.ends, E.ends)
  /\ [i \in DOMAIN s.queue |-> s.queue[i].claim] = E.queue

Goes == at' = at + 1 /\ key' = key /\ PrintT(<<"step", key, at>>)

StoreStep ==
  /\ Timely /\ E.kind = "store"
  /\ \E c \in E.claims, name \in E.acts :
       /\ wire[c[1]] # <<>> /\ NextOf(c[1]).claim = c
       /\ Named(name, c[1]) /\ AsLogged(server') /\ did' = name
  /\ Goes /\ UNCHANGED inside

\* The server has noticed that a lease ended: at the latest now, as far as clocks tell.
Expired ==
  /\ Timely /\ E.kind = "expire"
  /\ \A l \in server.held : l.ends <= now + Slack
  /\ now' = IF server.held = {} THEN now ELSE (CHOOSE l \in server.held : TRUE).ends
  /\ server' = [server EXCEPT !.held = {}]
  /\ AsLogged(server') /\ did' = "Expire"
  /\ Goes /\ UNCHANGED <<lag, replica, history, net, proc, rest, seen, inside>>

\* A caller wrote down that it has the lock, with which token, and until when at most it believes so. A renewal that raises nothing
\* leaves no trace in the store: it was sent so early that the lease it promises ends no later than the one that is there.
Entered ==
  /\ Timely /\ E.kind = "enter"
  /\ \E c \in E.claims :
       /\ Claim(c[1]) = c /\ Inside(c[1]) /\ proc[c[1]].token = E.token
       /\ \/ E.ends <= proc[c[1]].deadline + Slack
          \/ \E l \in server.held : l.claim = c /\ E.ends <= l.ends - Margin + Slack
       /\ inside' = inside \cup {c}
  /\ did' = "enters" /\ Goes /\ UNCHANGED vars

\* And that it is done, or knows that it has lost the lock.
Left ==
  /\ Timely /\ E.kind = "leave"
  /\ inside' = inside \ E.claims
  /\ did' = "leaves" /\ Goes /\ UNCHANGED vars

(***************************************************************************)
(* What is not logged: only what the next step of the log needs.           *)
(***************************************************************************)
MayAsk == E.kind = "store" /\ E.acts \cap {"Grant", "Repeat", "Queue", "Native", "QueueMeanwhile"} # {}
MayGo(p) == \/ E.kind = "store" /\ E.acts \cap {"Free", "HandOff", "LeaveFree"} # {} /\ Claim(p) \in E.claims
           \/ \E c \in E.claims : c[1] = p /\ proc[p].n < c[2]

\* A request that changes nothing leaves no trace in the store.
Silent(p) ==
  /\ wire[p] # <<>>
  /\ \E name \in {"repeat", "queue", "meanwhile", "stale", "busy", "renew", "lost", "release", "kill"} : Execute(p, NextOf(p), name)
  /\ server' = server /\ inbox' = inbox

\* An answer that nobody waited for any more.
Missed(p) == "Repeat" \in E.acts /\ Claim(p) \in E.claims /\ Waits(p) /\ Break(p)

\* Requests are executed and answers are read before a process does anything else: it sends only what the next step needs.
ActsAlone(p) ==
  \/ did' = "Acquire" /\ MayAsk /\ <<p, proc[p].n + 1>> \in E.claims /\ Acquire(p)
     /\ ("Native" \in E.acts \/ Head(wire'[p]).kind = "acquire")
  \/ did' = "Ask" /\ MayAsk /\ Claim(p) \in E.claims /\ Ask(p)
  \/ did' = "AskRenewal" /\ E.kind = "store" /\ "Renew" \in E.acts /\ Claim(p) \in E.claims /\ AskRenewal(p)
  \/ did' = "Release" /\ MayGo(p) /\ Claim(p) \notin inside /\ Release(p)
  \/ did' = "Withdraw" /\ MayGo(p) /\ Withdraw(p)
  \/ did' = "Lose" /\ MayGo(p) /\ Lose(p)
  \/ did' = "EndAgain" /\ MayGo(p) /\ EndAgain(p)
  \/ did' = "Hear" /\ Hear(p)

Reads(p) ==
  \/ did' = "Receive" /\ Receive(p)
  \/ did' = "Break" /\ Missed(p)
  \/ did' = "Hear" /\ E.kind = "enter" /\ Hear(p)

Unlogged(p) ==
  CASE wire[p] # <<>> -> did' = "nothing changes" /\ Silent(p)
    [] wire[p] = <<>> /\ back[p] # <<>> -> Reads(p)
    [] OTHER -> ActsAlone(p)

Between == /\ Timely /\ E.kind \in {"store", "enter"}
           /\ \E p \in {c[1] : c \in E.claims} : Unlogged(p)
           /\ UNCHANGED log

TraceInit == Init /\ key \in DOMAIN Logs /\ at = 1 /\ inside = {} /\ did = "Nothing yet"
TraceNext == Advance \/ Elsewhere \/ StoreStep \/ Expired \/ Entered \/ Left \/ Between
TraceSpec == TraceInit /\ [][TraceNext]_all

\* Only to show how far a log is a behaviour: false where the step of number Number comes next.
NotReached == at < Number
=============================================================================
