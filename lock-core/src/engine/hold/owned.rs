//! The sole owner of a hold. It releases the hold whatever happens to its caller.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::engine::claim::free::{ReleaseOutcome, free, settled_at};
use crate::engine::handle::EngineHandle;
use crate::engine::hold::release::{Begun, release, revoke};
use crate::engine::hold::{Hold, Left};
use crate::engine::lease::{Ending, Occupant};
use crate::engine::report::event_context::EventContext;
use crate::engine::shared::{Caller, Engine};
use crate::engine::watch::watchdog;
use lock_store::contract::event::LockEventKind;
use lock_store::types::error::{LockError, LossReason, Result};
use lock_store::types::mode::Mode;
use lock_store::types::system::clock::Timestamp;

/// The sole owner of a hold. Dropping it releases the hold in the background.
#[derive(Debug)]
pub(crate) struct OwnedHold {
    pub(crate) hold: Arc<Hold>,
    /// The acquire that joined an existing grant and the time when it did, if this owner joined one.
    joined: Option<Box<(EventContext, Timestamp)>>,
    ended: bool,
    /// Dropped last, after the release was handed to the keeper.
    handle: Arc<EngineHandle>,
}

/// How a holder comes to its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderRole {
    /// The lease begins with this holder.
    First,
    /// This holder takes the lease over from another holder.
    Next,
    /// This holder shares the lease with others.
    Guest,
}

impl OwnedHold {
    /// Takes over a hold and puts its lease under the watchdog.
    #[inline]
    pub(crate) fn new(handle: Arc<EngineHandle>, hold: Arc<Hold>, role: HolderRole) -> Self {
        let engine = &handle.engine;
        let lost = {
            let mut state = hold.lease.state();
            let occupant: Weak<dyn Occupant> = Arc::<Hold>::downgrade(&hold);
            if role == HolderRole::Guest {
                state.add_guest(occupant);
            } else {
                (state.holder, state.ends_by) = (Some(occupant), hold.ends_by);
            }
            state.over
        };
        if role == HolderRole::First || hold.ends_by != Timestamp::NEVER {
            watchdog::watch(engine, &hold.lease, hold.granted_at);
        }
        // The lock was lost between two holders, when it had no holder to notify.
        if let Some(Ending::Lost(reason)) = lost {
            hold.lose(reason);
        }
        if engine.is_closed() {
            let (worker, lease) = (Arc::clone(engine), Arc::clone(&hold.lease));
            watchdog::end(engine, &lease, LossReason::ShutDown);
            engine.clean_up(async move {
                let _ = revoke(&worker, &lease).await;
            });
        }
        Self { hold, joined: None, ended: false, handle }
    }

    /// Joins a grant that an outer scope of the same task holds. The caller must have called [`Hold::add_guard`].
    pub(crate) fn shared(handle: Arc<EngineHandle>, hold: Arc<Hold>, events: EventContext) -> Self {
        let joined = Some(Box::new((events, handle.engine.clock.now())));
        Self { hold, joined, ended: false, handle }
    }

    /// Releases the lock. If the future is dropped, the keeper finishes the release. A release in the background is
    /// done by the keeper alone.
    pub(crate) fn release(mut self, caller: Caller) -> impl Future<Output = Result<ReleaseOutcome>> + Send + 'static {
        let begun = (!self.engine().made_in.was_forked()).then(|| self.begin(caller, false));
        let in_background = self.hold.release_in_background;
        Finished { handle: Arc::clone(&self.handle), begun, in_background, has_yielded: false }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Turns a writer into a reader.
    pub(crate) async fn downgrade(&self) -> Result<()> {
        self.hold.ensure_held()?;
        if !self.engine().backend.capabilities().modes {
            return Err(Mode::READ.unknown_to_store());
        }
        let lease = &self.hold.lease;
        if lease.claim.mode.is_shared() && lease.claim.mode != Mode::READ {
            return Err(LockError::misconfigured("permits cannot be downgraded; release them and ask for fewer"));
        }
        if !lease.claim.mode.is_shared() {
            watchdog::downgrade(self.engine(), lease, Mode::READ).await?;
        }
        self.hold.give_up_turn();
        self.hold.ensure_held()
    }

    /// Ends the hold, and leaves the lock taken for the rest of its lease. From now on this process neither renews it nor
    /// frees it, also when it shuts down.
    pub(crate) fn leave(mut self) {
        self.ended = true;
        let (engine, hold) = (&self.handle.engine, &self.hold);
        let Left::Released(turn) = hold.release() else { return };
        if let Ok(ended) = hold.lease.end(Ending::Released) {
            engine.timer.cancel(ended.alarm);
        }
        let held = hold.held(engine.clock.now());
        hold.emit_end(LockEventKind::Released { held, dropped: false, confirmed: true });
        // The listener stays: a grant that is still in flight would otherwise look like one without a claim, and the keeper
        // would free the lock.
        let (timer, lease) = (Arc::clone(&engine.timer), Arc::clone(&hold.lease));
        engine.run_on_keeper(async move {
            timer.sleep_until(lease.deadline()).await;
            drop(lease);
        });
        drop(turn);
    }

    fn begin(&mut self, caller: Caller, dropped: bool) -> Begun {
        self.ended = true;
        let (engine, hold) = (&self.handle.engine, &self.hold);
        let now = engine.clock.now();
        // The deadline decides, and not whether its alarm has rung: what ends now ends as lost for everybody.
        if let Some(reason) = hold.loss_by_clock(now) {
            watchdog::end(engine, &hold.lease, reason);
            // Unless the lease has ended without it.
            hold.lose(reason);
        }
        if let Some(joined) = self.joined.take() {
            let (events, since) = *joined;
            let held = now.since(since);
            events.emit(match hold.ensure_held().err().and_then(|error| error.loss_reason()) {
                Some(reason) => LockEventKind::Lost { held, reason },
                None => LockEventKind::Released { held, dropped, confirmed: true },
            });
        }
        match hold.release() {
            Left::ToOthers => Begun::Done(ReleaseOutcome::Released),
            Left::Shared => {
                let held = hold.held(now);
                hold.emit_end(LockEventKind::Released { held, dropped, confirmed: true });
                Begun::Done(ReleaseOutcome::Released)
            }
            Left::Released(turn) => release((engine, now), hold, turn, caller, dropped),
            Left::Lost(reason) => {
                // The key may have outlived the loss, so the claim is still ended in the store. Only after a `max_hold`
                // does this process certainly have the key: then the release waits until the claim has ended.
                let claim = hold.lease.claim();
                let (worker, keep_until, settled_at) = (Arc::clone(engine), hold.keep_until(), settled_at(&hold.lease));
                let end = async move {
                    // A lock that cannot be freed now ends when its lease expires.
                    let _ = free(&worker, claim, keep_until, settled_at).await;
                };
                if reason == LossReason::MaxHold {
                    return Begun::Settling(Box::pin(async move {
                        end.await;
                        Ok(ReleaseOutcome::AlreadyLost(reason))
                    }));
                }
                engine.clean_up(end);
                Begun::Done(ReleaseOutcome::AlreadyLost(reason))
            }
        }
    }
}

impl Drop for OwnedHold {
    fn drop(&mut self) {
        // A forked child has no keeper. It must not release anything either, because the lock belongs to the parent.
        if !self.ended && !self.engine().made_in.was_forked() {
            let begun = self.begin(Caller::Async, true);
            leave_to_keeper(self.engine(), begun);
        }
    }
}

/// Lets the keeper finish a release.
fn leave_to_keeper(engine: &Arc<Engine>, begun: Begun) {
    if let Begun::Settling(work) = begun {
        engine.clean_up(async move {
            // The event reports the outcome.
            let _ = work.await;
        });
    }
}

/// A release that the keeper finishes if its caller drops it.
struct Finished {
    handle: Arc<EngineHandle>,
    begun: Option<Begun>,
    /// Whether the caller only sends the release.
    in_background: bool,
    /// Whether it has yielded once, so that other tasks were polled.
    has_yielded: bool,
}

impl Future for Finished {
    type Output = Result<ReleaseOutcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.begun.take() {
            Some(Begun::Done(outcome)) => Poll::Ready(Ok(outcome)),
            // A keeper that has ended cannot take the turn back from an unpolled caller, so waiting could take for ever.
            Some(Begun::Passed(..)) if self.in_background || self.handle.engine.is_unattended() => {
                Poll::Ready(Ok(ReleaseOutcome::InBackground))
            }
            Some(Begun::Passed(lease, takes)) => {
                let arrived = if self.has_yielded || lease.takes() > takes {
                    lease.poll_arrival(takes, cx)
                } else {
                    // The called waiter is usually polled before this future is polled again. Then no extra wake-up is needed.
                    cx.waker().wake_by_ref();
                    Poll::Pending
                };
                if arrived.is_pending() {
                    (self.begun, self.has_yielded) = (Some(Begun::Passed(lease, takes)), true);
                }
                arrived.map(|()| Ok(ReleaseOutcome::Released))
            }
            // The keeper does it, whatever happens to the caller and its runtime.
            Some(begun @ Begun::Settling(_)) if self.in_background => {
                self.begun = Some(begun);
                Poll::Ready(Ok(ReleaseOutcome::InBackground))
            }
            Some(Begun::Settling(mut work)) => {
                let done = work.as_mut().poll(cx);
                if done.is_pending() {
                    self.begun = Some(Begun::Settling(work));
                }
                done
            }
            None if self.handle.engine.made_in.was_forked() => Poll::Ready(Err(LockError::forked())),
            None => Poll::Pending,
        }
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            leave_to_keeper(&self.handle.engine, begun);
        }
    }
}
