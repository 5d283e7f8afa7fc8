------------------------------ MODULE Quorum ------------------------------
(***************************************************************************)
(* One lock on a majority of independent servers: the section *A quorum,   *)
(* and other keys* of docs/protocol.md, and docs/operations/quorum.md.     *)
(* There is no queue: who is refused gives back what it got and polls.     *)
(* README.md says how to read this, and what is not in it.                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Processes, Members,    \* who wants the lock; the servers
  Old, New,              \* the lists of members before and after a change
  Ahead,                 \* the members whose clocks are a tick ahead
  Claims, Latecomers,    \* how many claims a process makes; who makes them only in the last tick
  Ttl, Margin, Drift,    \* the lease; what a holder takes off it; how far a process's clock falls behind at most
  Excluded,              \* for how long a member that lost its data does not count: the longest lease
  Draws, Horizon,        \* how many tokens a tick is worth; how far time goes
  Renews,                \* whether holders renew
  OnTheWay,              \* how many requests of a process are on their way to a member at most
  Faults, Times,         \* which faults may strike, and how often each
  Off                    \* the rules that are taken out

VARIABLES
  now, lag,              \* time; how far each process's clock is behind it
  member,                \* what each member keeps: holder and expiry (K), fence, birth
  asked,                 \* requests on their way, by process and member, in order
  proc,                  \* what each process knows
  faults,                \* how often each fault may still strike
  seen                   \* what nobody knows, for judging: the tokens with which somebody entered

vars == <<now, lag, member, asked, proc, faults, seen>>

AllFaults == {"lose", "restart", "crash", "revoke"}
Keeps(rule) == rule \notin Off
Max(a, b) == IF a > b THEN a ELSE b
Greatest(S) == CHOOSE x \in S : \A y \in S : y <= x
\* Processes are alike, and so are members of both lists with equal clocks.
Symmetry == Permutations(Latecomers) \cup Permutations(Processes \ Latecomers) \cup Permutations((Old \cap New) \ Ahead)
Clock(p) == now - lag[p]
Majority(list) == IF Keeps("MoreThanHalf") THEN (Cardinality(list) \div 2) + 1 ELSE (Cardinality(list) + 1) \div 2
Strikes(fault) == faults[fault] > 0 /\ faults' = [faults EXCEPT ![fault] = @ - 1]

Nobody == <<"nobody", 0>>
Idle(n, list) == [state |-> "idle", n |-> n, list |-> list, round |-> 0, sent |-> 0, deadline |-> 0,
                  votes |-> {}, first |-> {}, token |-> 0, after |-> 0, renewed |-> {}]
Claim(p) == <<p, proc[p].n>>
Holds(p) == proc[p].state = "holding"
Inside(p) == Holds(p) /\ (Clock(p) < proc[p].deadline \/ ~Keeps("DeadlineReadAtTake"))

Asks(p, list, question) == asked' = [asked EXCEPT ![p] = [m \in Members |-> IF m \in list THEN Append(@[m], question) ELSE @[m]]]
Becomes(p, q) == proc' = [proc EXCEPT ![p] = q]

(***************************************************************************)
(* A MEMBER: a vote takes K as SET NX would, and its token is the fence of *)
(* K: the least above its time, the floor, and the fence before.           *)
(***************************************************************************)
Free(m) == member[m].holder = Nobody \/ member[m].ends <= now
Has(m, c) == member[m].holder = c /\ member[m].ends > now
Fence(m, floor) == Max(Max(member[m].fence + 1, floor + 1), (now + IF m \in Ahead THEN 1 ELSE 0) * Draws)
\* A member whose data are younger than the longest lease does not count.
Counts(m) == now >= member[m].born + Excluded \/ ~Keeps("RebornAreExcluded")

NextOf(p, m) == IF asked[p][m] = <<>> THEN [kind |-> "none"] ELSE Head(asked[p][m])
Heard(p, m) == asked' = [asked EXCEPT ![p][m] = Tail(@)]
\* The answer may be lost; and one of a round that is over tells nothing.
Current(p, q) == Claim(p) = q.claim /\ proc[p].round = q.round

Vote(p, m) ==
  LET q == NextOf(p, m)
      token == Fence(m, q.floor)
      kept == Has(m, q.claim)
      vote == [member |-> m, token |-> token, kept |-> kept]
      granted == Free(m) \/ kept
  IN /\ q.kind = "vote" /\ Heard(p, m)
     /\ member' = IF granted THEN [member EXCEPT ![m].holder = q.claim, ![m].fence = token,
                                                 ![m].ends = IF kept THEN Max(@, now + Ttl) ELSE now + Ttl]
                  ELSE member
     /\ \/ faults' = faults /\
           IF ~granted \/ ~Current(p, q) THEN proc' = proc
           ELSE IF proc[p].state = "voting" /\ Counts(m) THEN Becomes(p, [proc[p] EXCEPT !.votes = @ \cup {vote}])
           ELSE IF Holds(p) THEN Becomes(p, [proc[p] EXCEPT !.renewed = @ \cup {m}])   \* a repair renews
           ELSE proc' = proc
        \/ Strikes("lose") /\ proc' = proc
     /\ UNCHANGED <<now, lag, seen>>

\* A member that has lost the claim is given it again while the lease lasts.
Renew(p, m) ==
  LET q == NextOf(p, m)
  IN /\ q.kind = "renew"
     /\ IF Has(m, q.claim)
        THEN /\ member' = [member EXCEPT ![m].ends = Max(@, now + Ttl)] /\ Heard(p, m)
             /\ Becomes(p, IF Current(p, q) /\ Holds(p) THEN [proc[p] EXCEPT !.renewed = @ \cup {m}] ELSE proc[p])
        ELSE /\ UNCHANGED <<member, proc>>
             /\ IF Current(p, q) /\ Inside(p)
                THEN asked' = [asked EXCEPT ![p][m] = Append(Tail(@), [q EXCEPT !.kind = "vote", !.floor = proc[p].token - 1])]
                ELSE Heard(p, m)
     /\ UNCHANGED <<now, lag, faults, seen>>

Release(p, m) ==
  LET q == NextOf(p, m)
  IN /\ q.kind = "release" /\ Heard(p, m)
     /\ member' = IF Has(m, q.claim) THEN [member EXCEPT ![m].holder = Nobody, ![m].ends = 0] ELSE member
     /\ UNCHANGED <<now, lag, proc, faults, seen>>

(***************************************************************************)
(* A PROCESS: two rounds, and what ends a claim.                           *)
(***************************************************************************)
Question(p, kind, n, round, floor) == [kind |-> kind, claim |-> <<p, n>>, round |-> round, floor |-> floor]

Acquire(p) ==
  LET n == proc[p].n + 1
  IN /\ proc[p].state = "idle" /\ n <= Claims /\ (p \in Latecomers => now = Horizon)
     /\ Becomes(p, [Idle(n, proc[p].list) EXCEPT !.state = "voting", !.round = 1, !.sent = Clock(p),
                                                 !.deadline = Clock(p) + Ttl - Margin,
                                                 !.after = IF "revoke" \in Faults THEN Greatest(seen.entered \cup {0}) ELSE 0])
     /\ Asks(p, proc[p].list, Question(p, "vote", n, 1, 0))
     /\ UNCHANGED <<now, lag, member, faults, seen>>

\* From whom it was taken before it knew that it had it enters late, with the older token, and the fence refuses it.
Judged(p) == "revoke" \notin Faults \/ Cardinality({m \in Members : Has(m, Claim(p))}) >= Majority(proc[p].list)

\* A token is nobody else's, exceeds all that entered before it was asked for, and, of whom still has the lock, all before.
\* Where nobody revokes, the last says it all, and `after` is not kept.
Falls(p, token) == \/ token \in seen.entered \/ token <= proc[p].after
                   \/ Judged(p) /\ \E other \in seen.entered : token <= other

\* It enters only before its deadline.
Enters(p, token) ==
  /\ Clock(p) < proc[p].deadline \/ ~Keeps("DeadlineReadAtTake")
  /\ Becomes(p, [proc[p] EXCEPT !.state = "holding", !.token = token, !.votes = {}, !.first = {}, !.after = 0])
  /\ seen' = [entered |-> seen.entered \cup {token}, fell |-> seen.fell \/ Falls(p, token)]
  /\ UNCHANGED <<now, lag, member, asked, faults>>

Tokens(Q) == {v.token : v \in Q}
Enough(p, Q) == Cardinality({v.member : v \in Q}) = Majority(proc[p].list) /\ Cardinality(Q) = Majority(proc[p].list)

\* A majority gave one and the same token: it grants none below it any more.
Agree(p) ==
  /\ proc[p].state = "voting"
  /\ \E Q \in SUBSET proc[p].votes : Enough(p, Q) /\ Cardinality(Tokens(Q)) = 1 /\ Enters(p, Greatest(Tokens(Q)))

\* Otherwise the greatest token of the majority is written back first.
SecondRound(p) ==
  /\ proc[p].state = "voting" /\ proc[p].round = 1
  /\ \E Q \in SUBSET proc[p].votes :
       /\ Enough(p, Q) /\ Cardinality(Tokens(Q)) > 1
       /\ IF ~Keeps("TwoRounds") THEN Enters(p, Greatest(Tokens(Q)))
          ELSE /\ Becomes(p, [proc[p] EXCEPT !.round = 2, !.token = Greatest(Tokens(Q)), !.votes = {},
                                             !.first = {v.member : v \in proc[p].votes}])
               /\ Asks(p, proc[p].list, Question(p, "vote", proc[p].n, 2, Greatest(Tokens(Q))))
               /\ UNCHANGED <<now, lag, member, faults, seen>>

\* A majority that counted before and kept the claim proves that nobody came between.
Confirm(p) ==
  /\ proc[p].state = "voting" /\ proc[p].round = 2
  /\ \E Q \in SUBSET {v \in proc[p].votes : v.member \in proc[p].first /\ (v.kept \/ ~Keeps("KeptBetweenRounds"))} :
       Enough(p, Q) /\ Enters(p, proc[p].token)

\* Released, given up, refused or lost: every member is told, also those that seemed to refuse.
End(p) ==
  /\ proc[p].state \in {"voting", "holding"}
  /\ Becomes(p, Idle(proc[p].n, proc[p].list))
  /\ Asks(p, proc[p].list, Question(p, "release", proc[p].n, 0, 0))
  /\ UNCHANGED <<now, lag, member, faults, seen>>

AskRenewal(p) ==
  /\ Renews /\ Inside(p) /\ Clock(p) > proc[p].sent
  /\ Becomes(p, [proc[p] EXCEPT !.sent = Clock(p), !.renewed = {}, !.round = @ + 1])
  /\ Asks(p, proc[p].list, Question(p, "renew", proc[p].n, proc[p].round + 1, 0))
  /\ UNCHANGED <<now, lag, member, faults, seen>>

Renewed(p) ==
  /\ Inside(p) /\ Cardinality(proc[p].renewed) >= IF Keeps("RenewedByMajority") THEN Majority(proc[p].list) ELSE 1
  /\ Becomes(p, [proc[p] EXCEPT !.deadline = Max(@, proc[p].sent + Ttl - Margin), !.renewed = {}])
  /\ UNCHANGED <<now, lag, member, asked, faults, seen>>

\* Members change one at a time: a process that has no claim takes the new list.
ChangeMembers(p) ==
  /\ proc[p].state = "idle" /\ proc[p].list # New /\ proc[p].n < Claims
  /\ Becomes(p, [proc[p] EXCEPT !.list = New])
  /\ UNCHANGED <<now, lag, member, asked, faults, seen>>

(***************************************************************************)
(* TIME, AND FAULTS.  Requests are late as long as they like.              *)
(***************************************************************************)
Tick ==
  /\ now < Horizon /\ now' = now + 1
  /\ lag' \in {f \in [Processes -> 0..Drift] : \A p \in Processes : f[p] \in {lag[p], lag[p] + 1}}
  /\ UNCHANGED <<member, asked, proc, faults, seen>>

\* A member comes back empty.
Restart(m) ==
  /\ Strikes("restart")
  /\ member' = [member EXCEPT ![m] = [holder |-> Nobody, ends |-> 0, fence |-> 0, born |-> now]]
  /\ UNCHANGED <<now, lag, asked, proc, seen>>

Crash(p) ==
  /\ Strikes("crash") /\ proc[p].state \in {"voting", "holding"}
  /\ Becomes(p, [Idle(Claims, proc[p].list) EXCEPT !.state = "dead"])
  /\ UNCHANGED <<now, lag, member, asked, seen>>

\* An operator takes the lock away at every member.
Revoke ==
  /\ Strikes("revoke")
  /\ \E p \in Processes :
       /\ \E m \in Members : Has(m, Claim(p))
       /\ member' = [m \in Members |-> IF Has(m, Claim(p)) THEN [member[m] EXCEPT !.holder = Nobody, !.ends = 0]
                                      ELSE member[m]]
  /\ UNCHANGED <<now, lag, asked, proc, seen>>

Init ==
  /\ now = 0 /\ lag = [p \in Processes |-> 0]
  /\ member = [m \in Members |-> [holder |-> Nobody, ends |-> 0, fence |-> 0, born |-> 0 - Excluded]]
  /\ asked = [p \in Processes |-> [m \in Members |-> <<>>]]
  /\ proc = [p \in Processes |-> Idle(0, Old)]
  /\ faults = [fault \in AllFaults |-> IF fault \in Faults THEN Times ELSE 0]
  /\ seen = [entered |-> {}, fell |-> FALSE]

Next ==
  \/ \E p \in Processes :
       \/ Acquire(p) \/ Agree(p) \/ SecondRound(p) \/ Confirm(p) \/ End(p) \/ AskRenewal(p) \/ Renewed(p)
       \/ ChangeMembers(p) \/ Crash(p)
       \/ \E m \in Members : Vote(p, m) \/ Renew(p, m) \/ Release(p, m)
  \/ \E m \in Members : Restart(m)
  \/ Revoke \/ Tick

Spec == Init /\ [][Next]_vars

FewOnTheWay == \A p \in Processes, m \in Members : Len(asked[p][m]) <= OnTheWay

NoTwoHolders == Cardinality({p \in Processes : Inside(p)}) <= 1
TokensGrow == ~seen.fell
Shape == \A p \in Processes : proc[p].state \in {"idle", "voting", "holding", "dead"} /\ proc[p].n <= Claims
=============================================================================
