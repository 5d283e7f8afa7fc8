//! The shared state of one holder: its part of a lease, and whether it was lost.

pub(crate) mod owned;
pub(crate) mod release;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use crate::engine::claim::{Handoff, HolderHint, LocalPlace};
use crate::engine::gate::{Leaving, Turn};
use crate::engine::lease::{Lease, Occupant};
use crate::engine::report::event_context::EventContext;
use crate::engine::report::trace;
use lock_store::contract::backend::JobRun;
use lock_store::contract::event::{LockEventKind, Purpose};
use lock_store::types::error::{LockError, LossReason, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::options::LockOptions;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::Timestamp;
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// One holder, shared by its guard, the watchdog and the gate.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) events: EventContext,
    pub(crate) token: FencingToken,
    pub(crate) lease: Arc<Lease>,
    /// The span of the code that runs under this hold. `None` if spans are disabled: a span is large.
    span: Option<Box<Span>>,
    pub(crate) granted_at: Timestamp,
    /// When the hold reaches its `max_hold`.
    pub(crate) ends_by: Timestamp,
    /// Whether a release returns without waiting for the answer.
    pub(crate) release_in_background: bool,
    state: Mutex<HoldState>,
    /// Signals that the lock is lost.
    lost: Notify,
}

#[derive(Debug)]
struct HoldState {
    status: Status,
    /// Whether the event of the loss was emitted, or left to the thread that is emitting a renewal. Only then may the
    /// holder learn of the loss, so that observers hear of it first.
    announced: bool,
    /// How many events of renewals are being emitted.
    emitting: u32,
    /// The event of the end, if renewals were being emitted when the hold ended. The thread that emits the last of them
    /// emits this event too, so that it comes last. Observers are code of the application: no thread may wait for them
    /// while it holds a lock. Boxed because it is rare.
    end_event: Option<Box<LockEventKind<'static>>>,
    /// How many re-entrant guards exist besides the first. The hold ends with the last guard.
    more_guards: u32,
    /// Whether the release frees the key before `min_hold` has passed.
    without_min_hold: bool,
    /// How the body ended, if the caller said so.
    succeeded: Option<bool>,
    /// The place in this process. The holder and its lease give it up together.
    place: Option<LocalPlace>,
}

/// The state of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Held,
    Lost(LossReason),
    Released,
}

/// The remainder of a hold when one of its guards ends.
pub(crate) enum Left {
    /// Other guards still share the hold.
    ToOthers,
    /// Other holders still share the lease.
    Shared,
    /// The hold ended. The turn is returned if the hold had it.
    Released(Option<Turn<Handoff>>),
    /// The hold had ended before.
    Lost(LossReason),
}

impl Hold {
    /// Makes the next holder of a lease, and tells the waiters of this process about it.
    #[inline]
    pub(crate) fn begin(
        now: Timestamp,
        events: EventContext,
        options: &LockOptions,
        token: FencingToken,
        lease: Arc<Lease>,
        place: LocalPlace,
    ) -> Arc<Self> {
        let span = trace::hold(&events, lease.claim.owner, token);
        Arc::new_cyclic(|this| {
            let occupant: Weak<dyn Occupant> = Weak::<Self>::clone(this);
            place.set_holder(HolderHint::Here(occupant));
            Self {
                span: (!span.is_disabled()).then(|| Box::new(span)),
                events,
                token,
                lease,
                granted_at: now,
                ends_by: options.max_hold.map_or(Timestamp::NEVER, |limit| now.after(limit)),
                release_in_background: options.release_in_background,
                state: Mutex::new(HoldState {
                    status: Status::Held,
                    announced: false,
                    emitting: 0,
                    end_event: None,
                    more_guards: 0,
                    without_min_hold: false,
                    succeeded: None,
                    place: Some(place),
                }),
                lost: Notify::new(),
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock()
    }

    /// Returns how long this process may still rely on the lock.
    pub(crate) fn remaining(&self) -> Duration {
        if self.events.origin.made_in.was_forked() {
            return Duration::ZERO;
        }
        self.remaining_at(self.now())
    }

    fn remaining_at(&self, now: Timestamp) -> Duration {
        let status = self.state().status;
        match status {
            Status::Held => self.lease.deadline().min(self.ends_by).since(now),
            Status::Lost(_) | Status::Released => Duration::ZERO,
        }
    }

    /// Compares the clock with the deadline. A flag that another thread sets would come too late after a pause of the
    /// whole process.
    pub(crate) fn ensure_held(&self) -> Result<()> {
        if self.events.origin.made_in.was_forked() {
            return Err(LockError::forked().with_key(&self.events.key));
        }
        let status = self.state().status;
        let reason = match status {
            Status::Lost(reason) => reason,
            Status::Released => LossReason::Revoked,
            Status::Held => match self.loss_by_clock(self.now()) {
                Some(reason) => reason,
                None => return Ok(()),
            },
        };
        Err(LockError::lost(reason).with_key(&self.events.key))
    }

    /// Why the lock is lost by the clock at `now`, if it is, although the alarm may not have rung yet.
    #[inline]
    pub(crate) fn loss_by_clock(&self, now: Timestamp) -> Option<LossReason> {
        let deadline = self.lease.deadline();
        if now < deadline.min(self.ends_by) {
            return None;
        }
        self.lease.state().loss_at(now, self.ends_by, deadline)
    }

    /// Emits the event of the end. If a thread is emitting a renewal at this moment, that thread emits the end
    /// afterwards.
    pub(crate) fn emit_end(&self, kind: LockEventKind<'static>) {
        {
            let mut state = self.state();
            if state.emitting > 0 {
                state.end_event = Some(Box::new(kind));
                return;
            }
        }
        self.emit_end_now(kind);
    }

    fn emit_end_now(&self, kind: LockEventKind<'static>) {
        trace::ended(self.span(), &kind);
        if let LockEventKind::Lost { held, reason } = kind {
            trace::lost(self.span(), &self.events, self.token, held, reason);
        }
        let released = matches!(kind, LockEventKind::Released { .. });
        self.events.emit(kind);
        let succeeded = if released { self.state().succeeded } else { None };
        if let Some(succeeded) = succeeded {
            self.events.emit_job_ended(succeeded);
        }
    }

    /// Adds a guard to the grant. Returns false if the hold has ended.
    pub(crate) fn add_guard(&self) -> bool {
        let in_time = self.loss_by_clock(self.now()).is_none();
        let mut state = self.state();
        let held = in_time && state.status == Status::Held;
        state.more_guards += u32::from(held);
        held
    }

    /// Removes one guard from the grant. The hold ends with its last guard, unless the lock was lost before.
    #[inline]
    pub(crate) fn release(&self) -> Left {
        let mut state = self.state();
        match state.status {
            Status::Held if state.more_guards > 0 => {
                state.more_guards -= 1;
                Left::ToOthers
            }
            Status::Held => {
                state.status = Status::Released;
                match state.place.take() {
                    Some(LocalPlace::Turn(turn)) => Left::Released(Some(turn)),
                    Some(LocalPlace::Member(membership)) => match membership.leave() {
                        Leaving::ToOthers => Left::Shared,
                        Leaving::Last(turn) => Left::Released(turn),
                    },
                    None => Left::Released(None),
                }
            }
            Status::Lost(reason) => Left::Lost(reason),
            Status::Released => Left::Lost(LossReason::Revoked),
        }
    }

    /// Waits until the lock is lost. Never returns if the lock is released first.
    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            if self.events.origin.made_in.was_forked() {
                return LossReason::Revoked;
            }
            let mut signal = std::pin::pin!(self.lost.notified());
            signal.as_mut().enable();
            let (status, announced) = {
                let state = self.state();
                (state.status, state.announced)
            };
            if let (Status::Lost(reason), true) = (status, announced) {
                return reason;
            }
            signal.await;
        }
    }

    /// Returns the span of the code that runs under this hold.
    pub(crate) fn span(&self) -> &Span {
        static NONE: Span = Span::none();
        self.span.as_deref().unwrap_or(&NONE)
    }

    /// Returns how long the lock has been held at `now`.
    pub(crate) fn held(&self, now: Timestamp) -> Duration {
        now.since(self.granted_at)
    }

    /// Returns when `min_hold` has passed.
    pub(crate) fn keep_until(&self) -> Timestamp {
        let least = Duration::from(self.lease.min_hold);
        if least.is_zero() || self.state().without_min_hold { self.granted_at } else { self.granted_at.after(least) }
    }

    /// Sets whether `min_hold` applies. The first of the guards that share a grant decides.
    pub(crate) fn set_min_hold(&self, on: bool) {
        let mut state = self.state();
        if state.more_guards == 0 {
            state.without_min_hold = !on;
        }
    }

    /// Notes how the body ended.
    pub(crate) fn set_succeeded(&self, succeeded: bool) {
        self.state().succeeded = Some(succeeded);
    }

    /// Returns the job run that ends now, if there is one. A run counts if it began, so that its `min_hold` applies, or
    /// if its body said how it ended.
    pub(crate) fn run(&self) -> Option<JobRun> {
        let Purpose::Job { every: Some(every) } = self.events.purpose else { return None };
        let state = self.state();
        let has_run = state.succeeded.is_some() || !state.without_min_hold;
        has_run.then(|| JobRun::new(every, state.succeeded == Some(true)))
    }

    /// Gives up the place in this process. From now on the store decides which other claims may hold the lock.
    pub(crate) fn give_up_turn(&self) {
        let mut state = self.state();
        let place = state.place.take_if(|place| matches!(place, LocalPlace::Turn(_)));
        drop(state);
        drop(place);
    }

    fn now(&self) -> Timestamp {
        self.lease.clock.now()
    }
}

impl Occupant for Hold {
    fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    fn lose(&self, reason: LossReason) {
        let place = {
            let mut state = self.state();
            if state.status != Status::Held {
                return;
            }
            state.status = Status::Lost(reason);
            state.place.take()
        };
        let held = self.held(self.now());
        self.emit_end(LockEventKind::Lost { held, reason });
        // The holder is told last. If it were told before the event, its own code could run ahead of the observers.
        self.state().announced = true;
        self.lost.notify_waiters();
        // Other callers of this process may try again. From now on the store excludes them, and this process does not.
        match place {
            // The lease has already ended, so the last member has nothing to release.
            Some(LocalPlace::Member(membership)) => drop(membership.leave()),
            place => drop(place),
        }
    }

    fn emit_renewal(&self, kind: LockEventKind<'_>) {
        {
            let mut state = self.state();
            if state.status != Status::Held {
                return;
            }
            state.emitting += 1;
        }
        self.events.emit(kind);
        let end = {
            let mut state = self.state();
            state.emitting -= 1;
            if state.emitting == 0 { state.end_event.take() } else { None }
        };
        if let Some(end) = end {
            self.emit_end_now(*end);
        }
    }

    fn holder(&self, now: Timestamp) -> Holder {
        let left = Some(self.remaining_at(now));
        let holder = Holder::new(self.events.holder_info(), self.lease.claim.owner, self.token, left);
        holder.here(self.events.mode.is_shared())
    }
}
