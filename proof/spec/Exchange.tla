----------------------------- MODULE Exchange -----------------------------
(***************************************************************************)
(* Whether a counter-example of lock-core/tests/model is a behaviour of    *)
(* Lock.tla without the same rule, and breaks the same claim at its end.   *)
(* Steps.tla has it: actions by their names, and what lies in the store    *)
(* after each.  A step that only the model has is left out.                *)
(***************************************************************************)
EXTENDS Lock, Steps

VARIABLE at

E == Log[at]

Named(name, p) ==
  CASE name = "Acquire" -> Acquire(p)       [] name = "Ask" -> Ask(p)
    [] name = "Withdraw" -> Withdraw(p)     [] name = "Release" -> Release(p)
    [] name = "Lose" -> Lose(p)
    [] name = "AskRenewal" -> AskRenewal(p) [] name = "LocalHandOff" -> LocalHandOff(p)
    [] name = "Receive" -> Receive(p)       [] name = "Hear" -> Hear(p)
    [] name = "Grant" -> Grant(p)           [] name = "Repeat" -> Repeat(p)
    [] name = "Queue" -> Queue(p)           [] name = "Stale" -> Stale(p)
    [] name = "Renew" -> Renew(p)           [] name = "Lost" -> Lost(p)
    [] name = "Free" -> Free(p)             [] name = "HandOff" -> HandOff(p)
    [] name = "Kill" -> Kill(p)             [] name = "Late" -> Late(p)
    [] name = "Break" -> Break(p)           [] name = "Crash" -> Crash(p)
    [] name = "Tick" -> Tick                [] name = "Expire" -> Expire
    [] name = "Flush" -> Flush              [] name = "Promote" -> Promote

AsTold(s) ==
  /\ {l.claim : l \in s.held} = E.held
  /\ [i \in DOMAIN s.queue |-> s.queue[i].claim] = E.queue

Told ==
  /\ at <= Len(Log)
  /\ \E name \in E.acts : Named(name, E.process)
  /\ AsTold(server') /\ at' = at + 1 /\ PrintT(<<"step", 1, at>>)

\* The model sends what ends a claim again as soon as a connection breaks, and its replica follows by itself.
Untold == ((\E p \in Processes : EndAgain(p)) \/ Replicate) /\ at' = at

ExchangeSpec == Init /\ at = 1 /\ [][Told \/ Untold]_<<vars, at>>

\* False where the whole of it has happened and the claim does not hold: what is looked for.
Whole == at > Len(Log)
Exclusion == Whole => NoTwoHolders
TokenOrder == Whole => TokensGrow
OrphanKey == Whole => ReleasedStaysReleased
=============================================================================
