//! The sole owner of a hold, which releases it whatever becomes of its caller.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::clock::Timestamp;
use crate::error::{LossReason, Result};
use crate::event::LockEventKind;
use crate::keeper::background::Background;
use crate::keeper::release::{Begun, ReleaseOutcome, free, release, revoke, settled_at};
use crate::keeper::{Anchor, Caller, Engine, watchdog};
use crate::lease::{Lease, Left, Story};
use crate::tenure::Ending;

/// The sole owner of a hold. Releases it in the background when dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) lease: Arc<Lease>,
    /// The acquire that joined the grant of another, and when, if this one did.
    joined: Option<Box<(Story, Timestamp)>>,
    ended: bool,
    /// Dropped after the release was handed to the keeper.
    anchor: Arc<Anchor>,
}

impl Hold {
    /// Takes a hold over from the machinery and puts it under the watchdog.
    pub(crate) fn new(anchor: Arc<Anchor>, lease: Arc<Lease>, first_of_tenure: bool) -> Self {
        let engine = &anchor.engine;
        let lost = {
            let mut state = lease.tenure.state();
            (state.holder, state.ends_by) = (Arc::downgrade(&lease), lease.ends_by);
            state.over
        };
        if first_of_tenure || lease.ends_by != Timestamp::NEVER {
            watchdog::watch(engine, &lease.tenure, lease.granted_at);
        }
        // Lost between two holders, when there was nobody to tell.
        if let Some(Ending::Lost(reason)) = lost {
            lease.lose(reason);
        }
        if engine.is_closed() {
            let (worker, tenure) = (Arc::clone(engine), Arc::clone(&lease.tenure));
            watchdog::end(engine, &tenure, LossReason::ShutDown);
            engine.clean_up(async move {
                let _ = revoke(&worker, &tenure).await;
            });
        }
        Self { lease, joined: None, ended: false, anchor }
    }

    /// Joins a grant that an outer scope of the same task holds, after [`Lease::share`].
    pub(crate) fn shared(anchor: Arc<Anchor>, lease: Arc<Lease>, story: Story) -> Self {
        let joined = Some(Box::new((story, anchor.engine.clock.now())));
        Self { lease, joined, ended: false, anchor }
    }

    /// Releases the lock. If the future is dropped, the keeper finishes it; if it was asked to, also
    /// otherwise.
    pub(crate) fn release(mut self, caller: Caller) -> impl Future<Output = Result<ReleaseOutcome>> + Send + 'static {
        let begun = self.begin(caller, false);
        let in_background = self.lease.release_in_background;
        Finished { anchor: Arc::clone(&self.anchor), begun: Some(begun), in_background }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.anchor.engine
    }

    /// Ends the lease after the store said that the key is not ours.
    pub(crate) fn declare_lost(&self) {
        let expired = self.engine().clock.now() >= self.lease.tenure.deadline();
        let reason = if expired { LossReason::Expired } else { LossReason::Stolen };
        watchdog::end(self.engine(), &self.lease.tenure, reason);
    }

    fn begin(&mut self, caller: Caller, dropped: bool) -> Begun {
        self.ended = true;
        let (engine, lease) = (&self.anchor.engine, &self.lease);
        if let Some(joined) = self.joined.take() {
            let (story, since) = *joined;
            let held = engine.clock.now().since(since);
            story.tell(match lease.ensure_held().err().and_then(|error| error.loss_reason()) {
                Some(reason) => LockEventKind::Lost { held, reason },
                None => LockEventKind::Released { held, dropped, confirmed: true },
            });
        }
        match lease.leave() {
            Left::ToOthers => Begun::Done(ReleaseOutcome::Released),
            Left::Released(turn) => release(engine, lease, turn, caller, dropped),
            Left::Lost(reason) => {
                // The key may have outlived the loss, so the claim is ended all the same. Only after
                // a max_hold is it certainly still ours: then whoever releases waits for that.
                let claim = lease.tenure.claim.clone();
                let (worker, keep_until, settled_at) =
                    (Arc::clone(engine), lease.keep_until(), settled_at(&lease.tenure));
                let end = async move {
                    // What cannot be freed now ends with its lease.
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

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            let begun = self.begin(Caller::Async, true);
            drop(Finished { anchor: Arc::clone(&self.anchor), begun: Some(begun), in_background: true });
        }
    }
}

/// A release that is finished by the keeper if its caller drops it.
struct Finished {
    anchor: Arc<Anchor>,
    begun: Option<Begun>,
    /// Whether the caller only sends it.
    in_background: bool,
}

impl Future for Finished {
    type Output = Result<ReleaseOutcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.begun.take() {
            Some(Begun::Done(outcome)) => Poll::Ready(Ok(outcome)),
            // Sent on the caller's own connection, or along with what the caller sends next.
            Some(Begun::Settling(work))
                if self.in_background && self.anchor.engine.backend.capabilities_dyn().inline_wakes =>
            {
                let known = Background::start(work, self.anchor.engine.enter());
                Poll::Ready(known.unwrap_or(Ok(ReleaseOutcome::InBackground)))
            }
            Some(Begun::Settling(mut work)) => {
                let done = work.as_mut().poll(cx);
                if done.is_pending() {
                    self.begun = Some(Begun::Settling(work));
                    if self.in_background {
                        // Sent. The keeper awaits the answer.
                        return Poll::Ready(Ok(ReleaseOutcome::InBackground));
                    }
                }
                done
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        if let Some(Begun::Settling(work)) = self.begun.take() {
            self.anchor.engine.clean_up(async move {
                // Told by its event.
                let _ = work.await;
            });
        }
    }
}
