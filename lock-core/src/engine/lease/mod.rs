//! One stay of this process at a key: from the store's grant to the release that is sent to the store.
//!
//! A lease may serve several local holders, one after the other. They share its deadline, its renewals and its range of
//! fencing tokens.

mod arrival;
pub(crate) mod grants;
mod state;

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use crate::engine::lease::grants::Listener;
use crate::engine::timer::AlarmId;
use lock_store::contract::backend::Claim;
use lock_store::contract::event::LockEventKind;
use lock_store::types::error::LossReason;
use lock_store::types::fencing::FencingToken;
use lock_store::types::mode::Mode;
use lock_store::types::options::{Durability, HandoffLimits, LockOptions, command_timeout};
use lock_store::types::owner::Holder;
pub(crate) use lock_store::types::system::clock::deadline_of;
use lock_store::types::system::clock::{Clock, Nanos, Timestamp};
use lock_store::types::system::sync::{Mutex, MutexGuard};

pub(crate) use state::LeaseState;

/// The terms that holders must agree on to share a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    ttl: Nanos,
    renew_every: Option<Nanos>,
    min_hold: Nanos,
    /// Whether the request allows local hand-offs.
    handoff: bool,
    mode: Mode,
    durability: Option<Durability>,
}

impl Terms {
    pub(crate) fn of(options: &LockOptions, mode: Mode) -> Self {
        Self {
            mode,
            ttl: options.ttl.into(),
            renew_every: options.renew_interval().map(Nanos::from),
            min_hold: options.min_hold.into(),
            handoff: options.handoff,
            durability: options.durability,
        }
    }
}

/// A holder of a lease, as far as the lease and the waiters behind it know it.
pub(crate) trait Occupant: Debug + Send + Sync {
    /// Returns the lease that is held.
    fn lease(&self) -> &Arc<Lease>;

    /// Ends the hold as lost, unless it has ended before.
    fn lose(&self, reason: LossReason);

    /// Emits the event of a renewal, unless the hold has ended. Another thread may be about to report the end.
    fn emit_renewal(&self, kind: LockEventKind<'_>);

    /// Describes this holder to the waiters of this process.
    fn holder(&self, now: Timestamp) -> Holder;
}

/// How a lease begins.
pub(crate) struct Beginning {
    /// The first token of the grant.
    pub(crate) token: FencingToken,
    /// When the granted command was sent. The lease is counted from here: the store granted it at this moment or later.
    pub(crate) sent_at: Timestamp,
    /// How long a lease the store granted.
    pub(crate) granted_for: Duration,
    /// Whether a waiter exists for the shared lock.
    pub(crate) wanted: bool,
    /// Whether the store reports changes of the key after the first renewal.
    pub(crate) push_loss: bool,
    /// The time until which the store may still execute an earlier, unanswered send of the claim.
    pub(crate) unsettled_until: Option<Timestamp>,
    /// The failover count of the key's server when the command was sent.
    pub(crate) failovers: u64,
    /// Receives grants for the claim, if the claim was ever queued.
    pub(crate) listener: Option<Listener>,
}

/// One stay of this process at a key.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The claim as it was granted. See [`claim`](Self::claim).
    pub(crate) claim: Claim,
    /// The mode after a downgrade.
    downgraded: OnceLock<Mode>,
    /// The terms that its holders agree on. The ttl is missing here because the claim has it.
    renew_every: Option<Nanos>,
    pub(crate) min_hold: Nanos,
    handoff: bool,
    durability: Option<Durability>,
    pub(crate) began: Timestamp,
    /// How long a lease the store granted at first. It is shorter than the ttl if the grant came through the queue.
    granted_for: Nanos,
    /// The time until which the store may still execute an earlier send of the claim, and take the lock again.
    pub(crate) unsettled_until: Option<Timestamp>,
    last_token: FencingToken,
    pub(crate) clock: Clock,
    /// The time until which this process may believe that it has the lock. It never moves back.
    deadline: AtomicU64,
    /// How often a holder took the lease. It changes only while the state is locked.
    takes: AtomicU64,
    state: Mutex<LeaseState>,
    /// Receives late grants for this claim, which would otherwise look like grants without a claim. It also hears of
    /// waiters.
    listener: Option<Box<Listener>>,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Lost(LossReason),
    /// Its release has begun. Answers to earlier renewals are ignored from now on.
    Released,
}

impl Lease {
    pub(crate) fn begin(
        clock: Clock,
        claim: Claim,
        options: &LockOptions,
        beginning: Beginning,
        now: Timestamp,
    ) -> Arc<Self> {
        let terms = Terms::of(options, claim.mode);
        let deadline = deadline_of(beginning.sent_at, beginning.granted_for);
        let whole = beginning.granted_for >= claim.ttl;
        let mut renew_at = match terms.renew_every {
            Some(interval) if whole => beginning.sent_at.after(interval.into()),
            None if whole => Timestamp::NEVER,
            // A grant that came through the queue is short, or locks end with a session. The lease is renewed after a
            // third of its time, well before it ends.
            Some(_) => now.after(deadline.since(now) / 3),
            // A fixed lease was promised in full. It is renewed now, and again if the store gives it in parts.
            None => now,
        };
        if beginning.push_loss {
            // The store reports changes of a key only after its first renewal, so the first renewal is sent early.
            renew_at = renew_at.min(beginning.sent_at.after(FIRST_LOOK));
        }
        Arc::new(Self {
            renew_every: terms.renew_every,
            min_hold: terms.min_hold,
            handoff: terms.handoff,
            durability: terms.durability,
            began: now,
            granted_for: beginning.granted_for.into(),
            unsettled_until: beginning.unsettled_until,
            last_token: FencingToken::new(beginning.token.get().saturating_add(FencingToken::PER_GRANT - 1)),
            deadline: AtomicU64::new(deadline.as_nanos()),
            takes: AtomicU64::new(0),
            state: Mutex::new(LeaseState {
                over: None,
                alarm: None,
                renew_at,
                downgraded_at: BEFORE,
                renewing: false,
                wanted: beginning.wanted,
                unanswered: false,
                whole,
                promised: BEFORE,
                suspect: false,
                verified: BEFORE,
                hinted: false,
                false_hints: 0,
                failovers: beginning.failovers,
                holder: None,
                guests: Vec::new(),
                ends_by: Timestamp::NEVER,
                // The last token that was given. None was given yet, so this is one less than the first. A first token
                // of zero stands for a missing token; then `next_token` gives none.
                token: FencingToken::new(beginning.token.get().saturating_sub(1)),
                passes: 0,
                end_arrived: false,
                releaser: None,
            }),
            downgraded: OnceLock::new(),
            claim,
            clock,
            listener: beginning.listener.map(Box::new),
        })
    }

    /// Returns the terms that the next holder must agree on.
    pub(crate) fn terms(&self) -> Terms {
        let Self { renew_every, min_hold, handoff, durability, .. } = *self;
        Terms { ttl: self.claim.ttl.into(), renew_every, min_hold, handoff, mode: self.mode(), durability }
    }

    /// Returns the claim as the store knows it.
    pub(crate) fn claim(&self) -> Claim {
        self.claim.clone().with_mode(self.mode())
    }

    /// Returns the claim as a renewal names it.
    pub(crate) fn claim_to_renew(&self) -> Claim {
        let claim = self.claim();
        if !claim.mode.is_shared() {
            return claim;
        }
        // The token of the phase is the first token of a shared grant. After a downgrade it is the last token that the
        // exclusive grant gave. The state has the token before the first one, or that last one.
        let given = u64::from(self.downgraded.get().is_none());
        let token = FencingToken::new(self.state().token.get() + given);
        claim.with_token(token)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.downgraded.get().copied().unwrap_or(self.claim.mode)
    }

    /// Notes that the mode is about to change. The caller must do this before it asks the store, because answers to
    /// earlier renewals are about the old mode. Returns the last token that was given.
    pub(crate) fn begin_downgrade(&self, mode: Mode, now: Timestamp) -> FencingToken {
        let _ = self.downgraded.set(mode);
        let mut state = self.state();
        state.downgraded_at = now;
        state.token
    }

    /// Returns how long one command about this lease may take.
    pub(crate) fn command_timeout(&self) -> Duration {
        command_timeout(self.claim.ttl)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock()
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Gives the next token of the grant, unless the lease has ended or its tokens are used up.
    pub(crate) fn next_token(&self, now: Timestamp) -> Option<FencingToken> {
        let mut state = self.state();
        if state.over.is_some() || state.token >= self.last_token || now >= self.deadline() {
            return None;
        }
        let token = FencingToken::new(state.token.get() + 1);
        if !self.mode().is_shared() {
            // All holders of a shared lock have the token of the phase, so no token is used up.
            state.token = token;
        }
        self.takes.store(self.takes() + 1, Ordering::Release);
        let releaser = state.releaser.take();
        drop(state);
        releaser.into_iter().for_each(Waker::wake);
        Some(token)
    }

    /// Counts one more local hand-off, if the lock may be passed on within this process.
    #[inline]
    pub(crate) fn may_pass(&self, limits: HandoffLimits, now: Timestamp) -> bool {
        let (stay, quarter) = (now.since(self.began), Duration::from(self.granted_for) / 4);
        if !self.handoff
            || self.renew_every.is_none()
            || self.min_hold != Nanos::from(Duration::ZERO)
            // After this time at the key, other processes must get their turn.
            || stay >= limits.slice
            || stay >= quarter
            // The next holder must start with enough of the lease, or it could lose the lock before the first renewal.
            || self.deadline().since(now) < quarter
            // It was extended for one holder. If the next holder dies, it must not block the fleet for longer than its ttl.
            || self.deadline().since(now) > self.claim.ttl
        {
            return false;
        }
        let mut state = self.state();
        // While another claim waits, a reader's lease is not passed on. Otherwise that claim would wait for all later
        // readers.
        if self.mode() == Mode::READ && self.is_wanted(&state) {
            return false;
        }
        if state.over.is_some() || state.passes >= limits.passes || state.token >= self.last_token {
            return false;
        }
        state.passes += 1;
        // Between two holders, no `max_hold` may end the lease.
        state.ends_by = Timestamp::NEVER;
        true
    }

    /// Raises the deadline after an answer to a command sent at `sent_at`. Returns false if the lease has ended: a
    /// lease that has ended stays ended. Otherwise a late answer could give the lock to a holder that was already told
    /// of its loss.
    pub(crate) fn raise(&self, state: &LeaseState, now: Timestamp, sent_at: Timestamp, ttl: Duration) -> bool {
        if state.over.is_some() || now >= self.deadline() {
            return false;
        }
        self.deadline.fetch_max(deadline_of(sent_at, ttl).as_nanos(), Ordering::AcqRel);
        true
    }

    /// Returns whether one more caller of this process may share the lease without asking the store. It may if no
    /// waiter is known, the store said so recently, and at least a quarter of the ttl is left.
    pub(crate) fn admits_guests(&self) -> bool {
        let now = self.clock.now();
        let state = self.state();
        let last_word = self.began.max(state.verified);
        !self.is_wanted(&state)
            && state.over.is_none()
            && now.since(last_word) < WORD_COUNTS
            && self.deadline().since(now) >= self.claim.ttl / 4
    }

    /// Returns whether a waiter is known for the shared lock.
    fn is_wanted(&self, state: &LeaseState) -> bool {
        state.wanted || self.listener.as_ref().is_some_and(|listener| listener.is_wanted())
    }

    /// Ends the lease, unless it has ended before. The caller cancels the alarm.
    pub(crate) fn end(
        &self,
        how: Ending,
    ) -> Result<EndedLease<impl Iterator<Item = Arc<dyn Occupant>> + use<>>, Ending> {
        let mut state = self.state();
        if let Some(before) = state.over {
            return Err(before);
        }
        state.over = Some(how);
        Ok(EndedLease { alarm: state.alarm.take(), holders: state.holders() })
    }
}

/// How long a lease may be shared with new callers after the store last said that nobody waits.
const WORD_COUNTS: Duration = Duration::from_secs(1);

/// A time before every other time.
const BEFORE: Timestamp = Timestamp::from_nanos(0);

/// How long after the grant the first renewal is sent, if the store reports changes after it. A lock that is held for
/// less time costs no such command.
const FIRST_LOOK: Duration = Duration::from_millis(200);

/// The work that is left for the caller that ended a lease.
pub(crate) struct EndedLease<H> {
    pub(crate) alarm: Option<AlarmId>,
    pub(crate) holders: H,
}
