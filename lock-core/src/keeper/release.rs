//! The end of a hold, of a tenure, and of a claim that nobody wants any more.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attempt, BoxFuture, Claim, Freed, Release};
use crate::claim::{Cargo, Load, Pursuit};
use crate::clock::{Timestamp, jitter};
use crate::error::{LockError, LockErrorKind, LossReason, Result};
use crate::event::LockEventKind;
use crate::gate::Turn;
use crate::keeper::{Caller, Engine, watchdog};
use crate::lease::Lease;
use crate::tenure::{Ending, Tenure};

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock was held until now, and is free or passed on.
    Released,
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
    lease: &Arc<Lease>,
    turn: Option<Turn<Cargo>>,
    caller: Caller,
    dropped: bool,
) -> Begun {
    let tenure = &lease.tenure;
    let held = lease.held();
    let kept = lease.keep_until > engine.clock.now();
    let turn = match turn {
        Some(turn) if !kept => match pass_on(engine, tenure, turn, || {
            lease.tell_end(LockEventKind::Released { held, dropped, confirmed: true });
        }) {
            Ok(()) => return Begun::Done(ReleaseOutcome::Released),
            Err(turn) => Some(turn),
        },
        turn => turn,
    };
    match tenure.end(Ending::Released) {
        Ok(ended) => {
            if let Some(alarm) = ended.alarm {
                engine.schedule.cancel(alarm);
            }
            let (engine, lease) = (Arc::clone(engine), Arc::clone(lease));
            Begun::Settling(Box::pin(async move {
                let tenure = Arc::clone(&lease.tenure);
                settle(&engine, &tenure, turn, caller, Some(Farewell { lease: &lease, held, dropped })).await
            }))
        }
        Err(Ending::Lost(reason)) => {
            lease.tell_end(LockEventKind::Lost { held, reason });
            Begun::Done(ReleaseOutcome::AlreadyLost(reason))
        }
        Err(Ending::Released) => Begun::Done(ReleaseOutcome::Released),
    }
}

/// Passes a tenure to the next in the local queue: the lock itself if it may go on, else its
/// release, which the next sends along with a claim of its own. Gives the turn back if nobody waits.
fn pass_on(
    engine: &Arc<Engine>,
    tenure: &Arc<Tenure>,
    turn: Turn<Cargo>,
    before: impl FnOnce(),
) -> Result<(), Turn<Cargo>> {
    if engine.gate.waiters(&tenure.claim.key) == 0 {
        return Err(turn);
    }
    before();
    let mut turn = turn;
    if tenure.may_pass(engine.handoff) && !engine.is_closed() {
        let cargo = Cargo::new(engine, Load::Tenure(Arc::clone(tenure)));
        match turn.hand_on(cargo, |next| next == tenure.terms) {
            Ok(()) => return Ok(()),
            Err((back, _)) => turn = back,
        }
    }
    retire(engine, tenure, turn)
}

/// Ends a tenure towards the store, together with the next claim of this process if there is one.
fn retire(engine: &Arc<Engine>, tenure: &Arc<Tenure>, turn: Turn<Cargo>) -> Result<(), Turn<Cargo>> {
    if let Ok(ended) = tenure.end(Ending::Released)
        && let Some(alarm) = ended.alarm
    {
        engine.schedule.cancel(alarm);
    }
    let cargo = Cargo::new(engine, Load::Retiring(Arc::clone(tenure)));
    if let Err((turn, _)) = turn.hand_on(cargo, |_| true) {
        // Those who waited have just left.
        let (worker, tenure) = (Arc::clone(engine), Arc::clone(tenure));
        engine.clean_up(async move {
            let _ = settle(&worker, &tenure, Some(turn), Caller::Async, None).await;
        });
    }
    Ok(())
}

/// Ends a tenure whose turn nobody took: passes it on, or tells the store in the background.
pub(crate) fn conclude(engine: &Arc<Engine>, tenure: &Arc<Tenure>, turn: Turn<Cargo>) {
    let _ = retire(engine, tenure, turn);
}

/// Whose release is settled, for its event.
struct Farewell<'a> {
    lease: &'a Lease,
    held: Duration,
    dropped: bool,
}

impl Farewell<'_> {
    fn tell(farewell: Option<&Self>, kind: impl FnOnce(&Self) -> LockEventKind<'static>) {
        if let Some(farewell) = farewell {
            farewell.lease.tell_end(kind(farewell));
        }
    }
}

/// Sends a release until it is answered, at most until the store frees the key by itself.
async fn settle(
    engine: &Arc<Engine>,
    tenure: &Arc<Tenure>,
    turn: Option<Turn<Cargo>>,
    caller: Caller,
    farewell: Option<Farewell<'_>>,
) -> Result<ReleaseOutcome> {
    let farewell = farewell.as_ref();
    let mut release = Release::new(tenure.claim.clone());
    release.last_token = tenure.last_used();
    let mut ambiguous = false;
    let mut answered = None;
    let outcome = loop {
        let sent_at = engine.clock.now();
        release.keep_for = farewell.map_or(Duration::ZERO, |farewell| farewell.lease.keep_until.since(sent_at));
        let command = engine.route(caller, Arc::clone(&engine.backend).release_dyn(release.clone()));
        let until = sent_at.after(tenure.command_timeout);
        match engine.bounded("release", &tenure.claim.key, until, command).await {
            // If an earlier try did it and its answer got lost, nothing is held now either.
            Ok(freed) if freed == Freed::Released || ambiguous => {
                answered = Some(sent_at);
                let confirmed = freed == Freed::Released;
                Farewell::tell(farewell, |farewell| LockEventKind::Released {
                    held: farewell.held,
                    dropped: farewell.dropped,
                    confirmed,
                });
                break Ok(ReleaseOutcome::Released);
            }
            Ok(_) => {
                answered = Some(sent_at);
                let reason = if sent_at >= tenure.deadline() { LossReason::Expired } else { LossReason::Stolen };
                Farewell::tell(farewell, |farewell| LockEventKind::Lost { held: farewell.held, reason });
                break Ok(ReleaseOutcome::AlreadyLost(reason));
            }
            Err(error) => {
                ambiguous |= error.is_ambiguous();
                let again_at = engine.clock.now().after(jitter(Duration::from_millis(5), Duration::from_millis(100)));
                if error.kind() != LockErrorKind::Unavailable || again_at >= tenure.deadline() {
                    Farewell::tell(farewell, |farewell| LockEventKind::Abandoned { held: farewell.held });
                    break Err(error.with_key(&tenure.claim.key));
                }
                engine.schedule.sleep_until(again_at).await;
            }
        }
    };
    lay_to_rest(engine, tenure, answered);
    // Only now may the next of this process ask: before, it would find the lock taken by us.
    drop(turn);
    outcome
}

/// When the store executes no unanswered acquire of a tenure's claim any more.
pub(super) fn settled_at(tenure: &Tenure) -> Timestamp {
    tenure.unsettled_until.unwrap_or(Timestamp::from_nanos(0))
}

/// Makes sure that no earlier send of the claim, executed late, takes or keeps the lock for nobody.
///
/// `answered` is when the release was sent that the store has answered. Without one the key may
/// outlive the lease that was believed in: a renewal may have been executed and its answer lost.
pub(crate) fn lay_to_rest(engine: &Arc<Engine>, tenure: &Tenure, answered: Option<Timestamp>) {
    let settled_at = settled_at(tenure);
    if answered.is_some_and(|sent_at| sent_at >= settled_at) {
        return;
    }
    let (worker, claim) = (Arc::clone(engine), tenure.claim.clone());
    engine.clean_up(async move {
        let _ = free(&worker, claim, Duration::ZERO, settled_at).await;
    });
}

/// Frees whatever a claim may hold, until an answer is certain to be the last word: the release it
/// answers was sent after `settled_at`, when the store executes no earlier acquire any more.
pub(super) async fn free(engine: &Arc<Engine>, claim: Claim, keep_for: Duration, settled_at: Timestamp) -> Result<()> {
    let give_up_at = engine.clock.now().max(settled_at).after(claim.ttl);
    let timeout = (claim.ttl / 6).clamp(Duration::from_millis(20), Duration::from_secs(5));
    loop {
        let sent_at = engine.clock.now();
        let (backend, until) = (Arc::clone(&engine.backend), sent_at.after(timeout));
        let answer = if keep_for.is_zero() {
            let command = engine.route(Caller::Async, backend.withdraw_dyn(claim.clone()));
            engine.bounded("withdraw", &claim.key, until, command).await
        } else {
            let mut release = Release::new(claim.clone());
            release.keep_for = keep_for;
            let command = engine.route(Caller::Async, backend.release_dyn(release));
            engine.bounded("release", &claim.key, until, command).await
        };
        let again_at = match answer {
            Ok(_) if sent_at >= settled_at => return Ok(()),
            Ok(_) => settled_at,
            Err(error) if error.kind() != LockErrorKind::Unavailable => return Err(error),
            Err(error) => {
                let again_at = engine.clock.now().after(jitter(Duration::from_millis(5), Duration::from_millis(250)));
                // By now the store has freed the key by itself.
                if again_at >= give_up_at {
                    return Err(error);
                }
                again_at
            }
        };
        engine.schedule.sleep_until(again_at).await;
    }
}

/// Frees what a claim of the past was granted.
pub(super) async fn forget(engine: &Arc<Engine>, claim: Claim) {
    if let Err(error) = free(engine, claim, Duration::ZERO, Timestamp::from_nanos(0)).await {
        tracing::debug!(%error, "a claim that has ended could not be freed; its lease runs out by itself");
    }
}

/// Undoes a claim whose callers have gone: finishes what is on its way, then frees what it took.
pub(crate) fn undo(engine: &Arc<Engine>, pursuit: Pursuit, turn: Turn<Cargo>) {
    let (claim, in_flight, unsettled_until, retiring, queued) = pursuit.into_parts();
    let nothing_sent = in_flight.is_none() && unsettled_until.is_none() && !queued;
    if let Some(tenure) = retiring {
        // Its release was to go along, and may never have.
        if nothing_sent {
            conclude(engine, &tenure, turn);
            return;
        }
        let worker = Arc::clone(engine);
        engine.clean_up(async move {
            let _ = settle(&worker, &tenure, None, Caller::Async, None).await;
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
            let settled_at = unsettled_until.unwrap_or(Timestamp::from_nanos(0));
            if let Err(error) = free(&worker, claim, Duration::ZERO, settled_at).await {
                tracing::debug!(%error, "an abandoned acquire could not be undone; its lease runs out by itself");
            }
        }
        drop(turn);
    });
}

/// Takes a lock away from its holder, who learns of it, and frees it.
pub(crate) async fn revoke(engine: &Arc<Engine>, tenure: &Arc<Tenure>) -> Result<()> {
    watchdog::end(engine, tenure, LossReason::Revoked);
    free(engine, tenure.claim.clone(), Duration::ZERO, settled_at(tenure))
        .await
        .map_err(|error: LockError| error.with_key(&tenure.claim.key))
}
