//! The shared state of one holder: its part of a lease, and whether it was lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use crate::claim::{Handoff, HolderHint};
use crate::clock::Timestamp;
use crate::error::{LockError, LossReason, Result};
use crate::event::LockEventKind;
use crate::event_context::EventContext;
use crate::fencing::FencingToken;
use crate::gate::Turn;
use crate::lease::{Lease, Occupant};
use crate::options::LockOptions;
use crate::owner::Holder;
use crate::trace;

/// One holder, shared by its guard, the watchdog and the gate.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) events: EventContext,
    pub(crate) token: FencingToken,
    pub(crate) lease: Arc<Lease>,
    /// Around what runs under this hold. `None` if nobody asked for spans: it is large.
    span: Option<Box<Span>>,
    pub(crate) granted_at: Timestamp,
    /// When the hold reaches its `max_hold`.
    pub(crate) ends_by: Timestamp,
    /// Whether whoever releases does not wait for the answer.
    pub(crate) release_in_background: bool,
    state: Mutex<State>,
    /// Signals that the lock is lost.
    lost: Notify,
    /// Held while observers are told of a renewal, so that they hear of the end after it.
    telling: Mutex<()>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Whether the observers have been told of the loss, so that its holder may learn of it.
    announced: bool,
    /// How many re-entrant guards share the grant with the first.
    shares: u32,
    /// Whether the release frees the key before the `min_hold` is over.
    without_min_hold: bool,
    /// The place at the head of the local queue, which holder and lease give up together.
    turn: Option<Turn<Handoff>>,
}

/// How far a hold has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Held,
    Lost(LossReason),
    Released,
}

/// What a guard that goes leaves behind.
pub(crate) enum Left {
    /// A hold that other guards share.
    ToOthers,
    /// The place at the head of the local queue, if nobody has taken it.
    Released(Option<Turn<Handoff>>),
    /// Nothing: the hold had ended before.
    Lost(LossReason),
}

impl Hold {
    /// Makes the next holder of a lease, and names it to those of this process who wait behind it.
    pub(crate) fn begin(
        now: Timestamp,
        events: EventContext,
        options: &LockOptions,
        token: FencingToken,
        lease: Arc<Lease>,
        turn: Turn<Handoff>,
    ) -> Arc<Self> {
        let span = trace::hold(&events, lease.claim.owner, token);
        Arc::new_cyclic(|this| {
            let occupant: Weak<dyn Occupant> = Weak::<Self>::clone(this);
            turn.set_holder(HolderHint::Here(occupant));
            Self {
                span: (!span.is_disabled()).then(|| Box::new(span)),
                events,
                token,
                lease,
                granted_at: now,
                ends_by: options.max_hold.map_or(Timestamp::NEVER, |limit| now.after(limit)),
                release_in_background: options.release_in_background,
                state: Mutex::new(State {
                    stage: Stage::Held,
                    announced: false,
                    shares: 0,
                    without_min_hold: false,
                    turn: Some(turn),
                }),
                lost: Notify::new(),
                telling: Mutex::default(),
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long the lock may still be believed in.
    pub(crate) fn remaining(&self) -> Duration {
        if self.events.origin.birthplace.is_left() {
            return Duration::ZERO;
        }
        self.remaining_at(self.now())
    }

    fn remaining_at(&self, now: Timestamp) -> Duration {
        let stage = self.state().stage;
        match stage {
            Stage::Held => self.lease.deadline().min(self.ends_by).since(now),
            Stage::Lost(_) | Stage::Released => Duration::ZERO,
        }
    }

    /// Compares the clock with the deadline. A flag that somebody else must set would be late
    /// after a pause of the whole process.
    pub(crate) fn ensure_held(&self) -> Result<()> {
        if self.events.origin.birthplace.is_left() {
            return Err(LockError::forked().with_key(&self.events.key));
        }
        let stage = self.state().stage;
        let now = self.now();
        let reason = match stage {
            Stage::Lost(reason) => reason,
            Stage::Released => LossReason::Revoked,
            Stage::Held if now >= self.ends_by => LossReason::MaxHold,
            Stage::Held if now >= self.lease.deadline() => self.lease.state().loss_by_time(),
            Stage::Held => return Ok(()),
        };
        Err(LockError::lost(reason).with_key(&self.events.key))
    }

    /// Tells of the end, after every renewal that was told of before.
    pub(crate) fn emit_end(&self, kind: LockEventKind<'_>) {
        drop(self.telling.lock().unwrap_or_else(PoisonError::into_inner));
        trace::ended(self.span(), &kind);
        if let LockEventKind::Lost { held, reason } = kind {
            trace::lost(self.span(), &self.events, self.token, held, reason);
        }
        self.events.emit(kind);
    }

    /// Adds a guard to the grant. Returns false if it is over.
    pub(crate) fn share(&self) -> bool {
        let mut state = self.state();
        let held = state.stage == Stage::Held;
        state.shares += u32::from(held);
        held
    }

    /// Takes one guard off a grant. With the last of them the hold ends by its release, unless it was lost
    /// before.
    pub(crate) fn release(&self) -> Left {
        let mut state = self.state();
        match state.stage {
            Stage::Held if state.shares > 0 => {
                state.shares -= 1;
                Left::ToOthers
            }
            Stage::Held => {
                state.stage = Stage::Released;
                Left::Released(state.turn.take())
            }
            Stage::Lost(reason) => Left::Lost(reason),
            Stage::Released => Left::Lost(LossReason::Revoked),
        }
    }

    /// Waits until the lock is lost. Never ends if it is released before.
    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            if self.events.origin.birthplace.is_left() {
                return LossReason::Revoked;
            }
            let mut signal = std::pin::pin!(self.lost.notified());
            signal.as_mut().enable();
            let (stage, announced) = {
                let state = self.state();
                (state.stage, state.announced)
            };
            if let (Stage::Lost(reason), true) = (stage, announced) {
                return reason;
            }
            signal.await;
        }
    }

    /// The span of what runs under this hold.
    pub(crate) fn span(&self) -> &Span {
        static NONE: Span = Span::none();
        self.span.as_deref().unwrap_or(&NONE)
    }

    /// Returns how long the lock has been held at a moment.
    pub(crate) fn held(&self, now: Timestamp) -> Duration {
        now.since(self.granted_at)
    }

    /// When the `min_hold` is over.
    pub(crate) fn keep_until(&self) -> Timestamp {
        let least = if self.state().without_min_hold { Duration::ZERO } else { self.lease.min_hold.into() };
        self.granted_at.after(least)
    }

    /// Says whether the `min_hold` counts. The first of the guards that share a grant decides.
    pub(crate) fn set_min_hold(&self, on: bool) {
        let mut state = self.state();
        if state.shares == 0 {
            state.without_min_hold = !on;
        }
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
        let turn = {
            let mut state = self.state();
            if state.stage != Stage::Held {
                return;
            }
            state.stage = Stage::Lost(reason);
            state.turn.take()
        };
        let held = self.held(self.now());
        self.emit_end(LockEventKind::Lost { held, reason });
        self.state().announced = true;
        self.lost.notify_waiters();
        // Others of this process may try again: the store, not this process, excludes from here.
        drop(turn);
    }

    fn emit_renewal(&self, kind: LockEventKind<'_>) {
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.state().stage == Stage::Held;
        if held {
            self.events.emit(kind);
        }
    }

    fn holder(&self, now: Timestamp) -> Holder {
        Holder::new(self.events.holder_info(), self.lease.claim.owner, self.token, Some(self.remaining_at(now)))
    }
}
