//! The end of a hold, of a lease, and of a claim that nobody wants any more.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attempt, BoxFuture, Claim, Freed, Release};
use crate::claim::{Carried, Handoff, PendingClaim};
use crate::clock::{Timestamp, jitter};
use crate::error::{LockError, LockErrorKind, LossReason, Result};
use crate::event::LockEventKind;
use crate::gate::Turn;
use crate::hold::Hold;
use crate::keeper::{Caller, Engine, watchdog};
use crate::lease::{Ending, Lease};
use crate::options::command_timeout;

/// Before every moment.
const PAST: Timestamp = Timestamp::from_nanos(0);

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock was held until now, and is free or passed on.
    Released,
    /// The lock was held until now. The store is told in the background, as the request asked for.
    InBackground,
    /// The lock had been lost before, for this reason.
    AlreadyLost(LossReason),
}

/// A release that was begun.
pub(super) enum Begun {
    /// The lock passed to another caller of this process, or was lost before.
    Done(ReleaseOutcome),
    /// The store is told.
    Settling(BoxFuture<'static, Result<ReleaseOutcome>>),
}

/// Releases a hold: to the next of this process if that is fair, else to the store.
pub(super) fn release(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    turn: Option<Turn<Handoff>>,
    caller: Caller,
    dropped: bool,
) -> Begun {
    let lease = &hold.lease;
    let now = engine.clock.now();
    let held = hold.held(now);
    let turn = match turn {
        // Somebody waits, and the key need not stay taken.
        Some(turn) if hold.keep_until() <= now && turn.waiters() > 0 => {
            hold.emit_end(LockEventKind::Released { held, dropped, confirmed: true });
            pass_on(engine, lease, turn, now);
            return Begun::Done(ReleaseOutcome::Released);
        }
        turn => turn,
    };
    match lease.end(Ending::Released) {
        Ok(ended) => {
            engine.schedule.cancel(ended.alarm);
            let (engine, hold) = (Arc::clone(engine), Arc::clone(hold));
            Begun::Settling(Box::pin(async move {
                let lease = Arc::clone(&hold.lease);
                release_until_answered(&engine, &lease, turn, caller, Some(HoldEnd { hold: &hold, held, dropped }))
                    .await
            }))
        }
        Err(Ending::Lost(reason)) => {
            hold.emit_end(LockEventKind::Lost { held, reason });
            Begun::Done(ReleaseOutcome::AlreadyLost(reason))
        }
        Err(Ending::Released) => Begun::Done(ReleaseOutcome::Released),
    }
}

/// Passes a lease to the next in the local queue: the lock itself if it may go on, else its
/// release, which the next sends along with a claim of its own.
fn pass_on(engine: &Arc<Engine>, lease: &Arc<Lease>, mut turn: Turn<Handoff>, now: Timestamp) {
    if lease.may_pass(engine.handoff, now) && !engine.is_closed() {
        let handoff = Handoff::new(engine, Carried::Lease(Arc::clone(lease)));
        match turn.hand_on(handoff, |next| next == lease.terms) {
            Ok(()) => return,
            Err((back, _)) => turn = back,
        }
    }
    retire(engine, lease, turn);
}

/// Ends a lease towards the store: together with the next claim of this process if there is one,
/// else in the background.
pub(crate) fn retire(engine: &Arc<Engine>, lease: &Arc<Lease>, turn: Turn<Handoff>) {
    if let Ok(ended) = lease.end(Ending::Released) {
        engine.schedule.cancel(ended.alarm);
    }
    let handoff = Handoff::new(engine, Carried::Retiring(Arc::clone(lease)));
    if let Err((turn, _)) = turn.hand_on(handoff, |_| true) {
        // Those who waited have just left.
        let (worker, lease) = (Arc::clone(engine), Arc::clone(lease));
        engine.clean_up(async move {
            let _ = release_until_answered(&worker, &lease, Some(turn), Caller::Async, None).await;
        });
    }
}

/// Whose release is settled, for its event.
struct HoldEnd<'a> {
    hold: &'a Hold,
    held: Duration,
    dropped: bool,
}

/// Sends a release until it is answered, at most until the store frees the key by itself.
async fn release_until_answered(
    engine: &Arc<Engine>,
    lease: &Arc<Lease>,
    turn: Option<Turn<Handoff>>,
    caller: Caller,
    hold_end: Option<HoldEnd<'_>>,
) -> Result<ReleaseOutcome> {
    let mut release = Release::new(lease.claim.clone());
    release.in_background =
        hold_end.as_ref().is_some_and(|hold_end| hold_end.hold.release_in_background && !hold_end.dropped);
    let retry = ReleaseRetry {
        withdraws: false,
        release,
        keep_until: hold_end.as_ref().map_or(PAST, |hold_end| hold_end.hold.keep_until()),
        timeout: lease.command_timeout(),
        settled_at: PAST,
        give_up_at: lease.deadline(),
    };
    let answer = retry.run(engine, caller).await;
    let outcome = match &answer {
        // If an earlier try did it and its answer got lost, nothing is held now either.
        Ok(done) if done.freed == Freed::Released || done.repeated => Ok(ReleaseOutcome::Released),
        Ok(done) if done.sent_at >= lease.deadline() => Ok(ReleaseOutcome::AlreadyLost(LossReason::Expired)),
        Ok(_) => Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)),
        Err(error) => Err(error.clone().with_key(&lease.claim.key)),
    };
    if let Some(HoldEnd { hold, held, dropped }) = hold_end {
        let confirmed = answer.as_ref().is_ok_and(|done| done.freed == Freed::Released);
        hold.emit_end(match outcome {
            Ok(ReleaseOutcome::AlreadyLost(reason)) => LockEventKind::Lost { held, reason },
            Ok(_) => LockEventKind::Released { held, dropped, confirmed },
            Err(_) => LockEventKind::Abandoned { held },
        });
    }
    ensure_freed(engine, lease, answer.ok().map(|done| done.sent_at));
    // Only now may the next of this process ask: before, it would find the lock taken by us.
    drop(turn);
    outcome
}

/// A release that is sent until its answer is the last word.
struct ReleaseRetry {
    release: Release,
    /// Whether nothing of the claim was used, as far as is known here.
    withdraws: bool,
    /// Until when the key stays taken.
    keep_until: Timestamp,
    /// How long one try may take.
    timeout: Duration,
    /// When the store executes no earlier acquire of the claim any more: only then can an answer be
    /// the last word.
    settled_at: Timestamp,
    /// When the store has freed the key by itself.
    give_up_at: Timestamp,
}

/// The answer to a release.
struct Answered {
    freed: Freed,
    /// When what was answered was sent.
    sent_at: Timestamp,
    /// Whether an earlier try may have been executed, without an answer.
    repeated: bool,
}

impl ReleaseRetry {
    async fn run(mut self, engine: &Arc<Engine>, caller: Caller) -> Result<Answered> {
        let mut repeated = false;
        loop {
            let sent_at = engine.clock.now();
            self.release.keep_for = self.keep_until.since(sent_at);
            let backend = Arc::clone(&engine.backend);
            let (op, command) = if self.withdraws && self.release.keep_for.is_zero() {
                ("withdraw", backend.withdraw_dyn(self.release.claim.clone()))
            } else {
                ("release", backend.release_dyn(self.release.clone()))
            };
            let command = engine.route(caller, command);
            let answer = engine.bounded(op, &self.release.claim.key, sent_at.after(self.timeout), command).await;
            let again_at = match answer {
                Ok(freed) if sent_at >= self.settled_at => return Ok(Answered { freed, sent_at, repeated }),
                Ok(_) => self.settled_at,
                Err(error) => {
                    repeated |= error.is_ambiguous();
                    self.release.in_background = false;
                    let pause = jitter(Duration::from_millis(5), Duration::from_millis(100));
                    let again_at = engine.clock.now().after(pause);
                    if error.kind() != LockErrorKind::Unavailable || again_at >= self.give_up_at {
                        return Err(error);
                    }
                    again_at
                }
            };
            engine.schedule.sleep_until(again_at).await;
        }
    }
}

/// When the store executes no unanswered acquire of a lease's claim any more.
pub(super) fn settled_at(lease: &Lease) -> Timestamp {
    lease.unsettled_until.unwrap_or(PAST)
}

/// Makes sure that no earlier send of the claim, executed late, takes or keeps the lock for nobody.
///
/// `answered` is when the release was sent that the store has answered. Without one the key may
/// outlive the lease that was believed in: a renewal may have been executed and its answer lost.
pub(crate) fn ensure_freed(engine: &Arc<Engine>, lease: &Lease, answered: Option<Timestamp>) {
    let settled_at = settled_at(lease);
    if answered.is_some_and(|sent_at| sent_at >= settled_at) {
        return;
    }
    let (worker, claim) = (Arc::clone(engine), lease.claim.clone());
    engine.clean_up(async move {
        let _ = free(&worker, claim, PAST, settled_at).await;
    });
}

/// Frees whatever a claim may hold, or keeps it taken until a moment, until an answer is certain to be
/// the last word: the release it answers was sent after `settled_at`.
pub(super) async fn free(
    engine: &Arc<Engine>,
    claim: Claim,
    keep_until: Timestamp,
    settled_at: Timestamp,
) -> Result<()> {
    let retry = ReleaseRetry {
        withdraws: true,
        keep_until,
        timeout: command_timeout(claim.ttl),
        settled_at,
        give_up_at: engine.clock.now().max(settled_at).after(claim.ttl),
        release: Release::new(claim),
    };
    retry.run(engine, Caller::Async).await.map(|_| ())
}

/// Frees what a claim of the past was granted.
pub(super) async fn free_stray_grant(engine: &Arc<Engine>, claim: Claim) {
    if let Err(error) = free(engine, claim, PAST, PAST).await {
        tracing::debug!(%error, "a claim that has ended could not be freed; its lease runs out by itself");
    }
}

/// Undoes a claim whose callers have gone: finishes what is on its way, then frees what it took.
pub(crate) fn abandon(engine: &Arc<Engine>, pending: PendingClaim, turn: Turn<Handoff>) {
    let (claim, in_flight, unsettled_until, retiring, queued) = pending.into_parts();
    let nothing_sent = in_flight.is_none() && unsettled_until.is_none() && !queued;
    if let Some(lease) = retiring {
        // Its release was to go along, and may never have.
        if nothing_sent {
            retire(engine, &lease, turn);
            return;
        }
        let worker = Arc::clone(engine);
        engine.clean_up(async move {
            let _ = release_until_answered(&worker, &lease, None, Caller::Async, None).await;
        });
    }
    if nothing_sent {
        return;
    }
    let worker = Arc::clone(engine);
    engine.clean_up(async move {
        let (mut unsettled_until, mut taken) = (unsettled_until, queued || unsettled_until.is_some());
        if let Some(mut sent) = in_flight {
            match worker.bounded("acquire", &claim.key, sent.until, &mut sent.command).await {
                Ok(Attempt::Granted { .. } | Attempt::Queued { .. }) => taken = true,
                Err(error) if error.is_ambiguous() => {
                    taken = true;
                    unsettled_until = unsettled_until.max(Some(sent.settled_after(worker.clock.now())));
                }
                Ok(Attempt::Held { .. }) | Err(_) => {}
            }
        }
        // While nobody knows what the store did, the next of this process had better ask it.
        let unsettled = unsettled_until.is_some_and(|at| at > worker.clock.now());
        let turn = Some(turn).filter(|_| !unsettled);
        if taken {
            let settled_at = unsettled_until.unwrap_or(PAST);
            if let Err(error) = free(&worker, claim, PAST, settled_at).await {
                tracing::debug!(%error, "an abandoned acquire could not be undone; its lease runs out by itself");
            }
        }
        drop(turn);
    });
}

/// Takes a lock away from its holder, who learns of it, and frees it.
pub(crate) async fn revoke(engine: &Arc<Engine>, lease: &Arc<Lease>) -> Result<()> {
    watchdog::end(engine, lease, LossReason::Revoked);
    free(engine, lease.claim.clone(), PAST, settled_at(lease))
        .await
        .map_err(|error: LockError| error.with_key(&lease.claim.key))
}
