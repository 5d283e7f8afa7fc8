//! The end of a hold: its lock passes to the next caller of this process, or back to the store.

use std::sync::Arc;

use crate::engine::claim::free::{PAST, ReleaseDetails, ReleaseOutcome, free, release_until_answered, settled_at};
use crate::engine::claim::{Carried, Handoff, retire};
use crate::engine::gate::Turn;
use crate::engine::hold::Hold;
use crate::engine::lease::{Ending, Lease};
use crate::engine::shared::{Caller, Engine};
use crate::engine::watch::watchdog;
use lock_store::contract::backend::BoxFuture;
use lock_store::contract::event::LockEventKind;
use lock_store::types::error::{LockError, LossReason, Result};
use lock_store::types::system::clock::Timestamp;

/// A release that was begun.
pub(crate) enum Begun {
    /// No work is left. The lock was lost before, or other guards or holders keep it.
    Done(ReleaseOutcome),
    /// The hold ended, and its lock is being passed to another caller of this process. The number is the count of takes
    /// before that.
    Passed(Arc<Lease>, u64),
    /// The release is in flight.
    Settling(BoxFuture<'static, Result<ReleaseOutcome>>),
}

/// Releases a hold: to the next caller of this process if that is fair, otherwise to the store.
#[inline]
pub(crate) fn release(
    (engine, now): (&Arc<Engine>, Timestamp),
    hold: &Arc<Hold>,
    turn: Option<Turn<Handoff>>,
    caller: Caller,
    dropped: bool,
) -> Begun {
    let lease = &hold.lease;
    let held = hold.held(now);
    let turn = match turn {
        // Hand-off inside the process. It requires that a caller waits, that no `min_hold` keeps the key taken, and
        // that no job run must be recorded in the store.
        Some(turn) if hold.keep_until() <= now && turn.waiters() > 0 && hold.run().is_none() => {
            hold.emit_end(LockEventKind::Released { held, dropped, confirmed: true });
            let takes = lease.takes();
            pass_on(engine, lease, turn, now);
            return Begun::Passed(Arc::clone(lease), takes);
        }
        turn => turn,
    };
    match lease.end(Ending::Released) {
        Ok(ended) => {
            engine.timer.cancel(ended.alarm);
            let (engine, hold) = (Arc::clone(engine), Arc::clone(hold));
            Begun::Settling(Box::pin(async move {
                let ended = ReleaseDetails {
                    keep_until: hold.keep_until(),
                    in_background: hold.release_in_background && !dropped,
                    run: hold.run(),
                    then: |outcome: &Result<ReleaseOutcome>, confirmed| {
                        hold.emit_end(match outcome {
                            Ok(ReleaseOutcome::AlreadyLost(reason)) => LockEventKind::Lost { held, reason: *reason },
                            Ok(_) => LockEventKind::Released { held, dropped, confirmed },
                            Err(_) => LockEventKind::Abandoned { held },
                        });
                    },
                };
                let outcome = release_until_answered(&engine, &hold.lease, caller, ended).await;
                // The next caller of this process may ask only now. Earlier it would find the lock taken by this
                // process.
                drop(turn);
                outcome
            }))
        }
        Err(Ending::Lost(reason)) => {
            hold.emit_end(LockEventKind::Lost { held, reason });
            Begun::Done(ReleaseOutcome::AlreadyLost(reason))
        }
        Err(Ending::Released) => Begun::Done(ReleaseOutcome::Released),
    }
}

/// Passes a lease to the next caller in the local queue. That caller gets the lock if it may be passed on. Otherwise it
/// gets the release, and sends it together with a claim of its own.
fn pass_on(engine: &Arc<Engine>, lease: &Arc<Lease>, mut turn: Turn<Handoff>, now: Timestamp) {
    if lease.may_pass(engine.handoff, now) && !engine.is_closed() {
        let handoff = Handoff::new(engine, Carried::Lease(Arc::clone(lease)));
        match turn.hand_on(handoff, |next| next == lease.terms()) {
            Ok(()) => return,
            Err((back, _)) => turn = back,
        }
    }
    retire(engine, lease, turn);
}

/// Takes a lock away from its holder, notifies the holder, and frees the lock.
pub(crate) async fn revoke(engine: &Arc<Engine>, lease: &Arc<Lease>) -> Result<()> {
    watchdog::end(engine, lease, LossReason::ShutDown);
    free(engine, lease.claim(), PAST, settled_at(lease))
        .await
        .map_err(|error: LockError| error.with_key(&lease.claim.key))
}
