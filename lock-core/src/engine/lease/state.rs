//! The part of a lease that changes while it runs.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use crate::engine::lease::{BEFORE, Ending, Lease, Occupant, deadline_of};
use crate::engine::timer::AlarmId;
use lock_store::types::error::LossReason;
use lock_store::types::fencing::FencingToken;
use lock_store::types::system::clock::Timestamp;

/// The part of a lease that changes while it runs.
#[derive(Debug)]
pub(crate) struct LeaseState {
    /// Why it ended, once it has ended.
    pub(crate) over: Option<Ending>,
    /// The alarm of the watchdog.
    pub(crate) alarm: Option<AlarmId>,
    /// When the next renewal is due.
    pub(crate) renew_at: Timestamp,
    /// When it was downgraded. Answers to renewals sent earlier are ignored. [`BEFORE`] if it was never downgraded.
    pub(crate) downgraded_at: Timestamp,
    /// Whether a renewal is in flight.
    pub(crate) renewing: bool,
    /// Whether the store said that a waiter exists, or existed, for the shared lock.
    pub(crate) wanted: bool,
    /// Whether the last renewal got no definite answer.
    pub(crate) unanswered: bool,
    /// Whether the store has given all that it was asked for. It gives less to a grant through the queue, and if its
    /// locks end with a session.
    pub(super) whole: bool,
    /// When a fixed lease ends that the store gives in parts. [`BEFORE`] if it gave the lease in one.
    pub(super) promised: Timestamp,
    /// Whether the key may have changed hands since the renewal in flight was sent.
    pub(crate) suspect: bool,
    /// When the last confirmed renewal was sent. [`BEFORE`] if there is none.
    pub(super) verified: Timestamp,
    /// Whether the next renewal comes early because the key may have changed hands.
    pub(super) hinted: bool,
    /// How many renewals in a row came early and found nothing changed.
    pub(super) false_hints: u32,
    /// The failover count of the key's server when the last command that confirmed the lease was sent.
    pub(crate) failovers: u64,
    /// The current holder, or the first of several.
    pub(crate) holder: Option<Weak<dyn Occupant>>,
    /// The other holders that share the lease.
    pub(super) guests: Vec<Weak<dyn Occupant>>,
    /// When the holder reaches its `max_hold`.
    pub(crate) ends_by: Timestamp,
    /// The token that was given last.
    pub(super) token: FencingToken,
    /// How often the lock was handed on locally.
    pub(super) passes: u32,
    /// Whether the end of the lease has arrived at the next caller or at the store.
    pub(super) end_arrived: bool,
    /// Wakes the holder that passed the lease on last and waits until it has arrived.
    pub(super) releaser: Option<Waker>,
}

impl LeaseState {
    /// Returns the current holder and the others that share the lease.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Arc<dyn Occupant>> + use<> {
        let guests: Vec<_> = self.guests.iter().filter_map(Weak::upgrade).collect();
        self.holder.as_ref().and_then(Weak::upgrade).into_iter().chain(guests)
    }

    /// Adds a holder that shares the lease.
    pub(crate) fn add_guest(&mut self, guest: Weak<dyn Occupant>) {
        if self.guests.len() == self.guests.capacity() {
            self.guests.retain(|guest| guest.strong_count() > 0);
        }
        self.guests.push(guest);
    }

    /// Why a holder has lost the lock by the clock at a moment, whether or not the alarm has rung. `ends_by` is the end of
    /// its `max_hold`, `deadline` that of the lease: the earlier one is the reason.
    pub(crate) fn loss_at(&self, now: Timestamp, ends_by: Timestamp, deadline: Timestamp) -> Option<LossReason> {
        if now < ends_by.min(deadline) {
            return None;
        }
        Some(if ends_by <= deadline { LossReason::MaxHold } else { self.loss_by_time() })
    }

    /// Why the lease ended, if it ended by the clock.
    fn loss_by_time(&self) -> LossReason {
        if self.unanswered || self.renewing { LossReason::Unreachable } else { LossReason::Expired }
    }
}

impl Lease {
    /// Returns how long a lease a renewal asks for, and whether it extends the lease. A fixed lease is not extended: the
    /// store only confirms the time that is left, or gives the next part of it.
    pub(crate) fn asks_for(&self, state: &LeaseState, now: Timestamp) -> (Duration, bool) {
        match (self.renew_every, state.whole) {
            (None, true) => (self.deadline().since(now), false),
            (None, false) if state.promised != BEFORE => (state.promised.since(now), true),
            _ => (self.claim.ttl, true),
        }
    }

    /// Returns how long a lease the store granted last. This is the ttl, except for a short grant from the queue that
    /// was not renewed yet, and if locks end with a session.
    pub(crate) fn granted_last(&self, state: &LeaseState) -> Duration {
        if state.whole { self.claim.ttl } else { self.granted_for.into() }
    }

    /// Plans what follows a renewal that was sent at `sent_at` and confirmed by the store. `times` are as in
    /// [`plan`](Self::plan). `failovers` is the failover count of the key's server at that time.
    pub(crate) fn confirmed(&self, state: &mut LeaseState, sent_at: Timestamp, times: [Duration; 2], failovers: u64) {
        (state.failovers, state.unanswered, state.verified) = (failovers, false, sent_at);
        state.false_hints = if std::mem::take(&mut state.hinted) { state.false_hints.saturating_add(1) } else { 0 };
        self.plan(state, sent_at, times);
        if std::mem::take(&mut state.suspect) {
            state.verify_soon();
        }
    }

    /// Plans the next renewal after one that asked for some time and was given at least a part of it. The next part is due
    /// well before this part ends.
    pub(crate) fn plan(&self, state: &mut LeaseState, sent_at: Timestamp, [asked, given]: [Duration; 2]) {
        state.whole = given >= asked.max(state.promised.since(sent_at));
        let mut interval = self.renew_every.map_or(Duration::MAX, Duration::from);
        if !state.whole {
            interval = interval.min(given / 3);
            state.promised = state.promised.max(deadline_of(sent_at, asked));
        }
        state.renew_at = sent_at.after(interval);
    }
}

impl LeaseState {
    /// Returns how much earlier than planned the next renewal may be sent, to share a command with other renewals. The
    /// first renewal may be much earlier. Otherwise locks that were granted in one burst would stay in one burst for
    /// ever.
    pub(crate) fn may_be_early(&self, now: Timestamp) -> Duration {
        self.renew_at.since(now) / if self.verified == BEFORE { 2 } else { 20 }
    }

    /// Brings the next renewal forward, because the key may have changed hands. Returns whether the alarm must change.
    pub(crate) fn suspected(&mut self) -> bool {
        if self.over.is_some() {
            return false;
        }
        if self.renewing {
            // The renewal in flight may have run before the change. One more renewal follows, however many hints
            // arrive.
            self.suspect = true;
            return false;
        }
        // Without a confirmed renewal, the hint is about an earlier holder of the key.
        self.verified != BEFORE && self.verify_soon()
    }

    pub(super) fn verify_soon(&mut self) -> bool {
        // A store may send false hints again and again, for many keys, and each costs a renewal. So each false hint in
        // a row doubles the pause.
        let soonest = self.verified.after(VERIFY_EVERY.saturating_mul(1 << self.false_hints.min(16)));
        let sooner = soonest < self.renew_at;
        self.hinted |= sooner;
        self.renew_at = self.renew_at.min(soonest);
        sooner
    }
}

/// The shortest pause between two early renewals of a key. It doubles with each early renewal that finds nothing
/// changed.
const VERIFY_EVERY: Duration = Duration::from_millis(10);
