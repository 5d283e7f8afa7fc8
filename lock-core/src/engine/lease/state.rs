//! What changes during a lease.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use crate::engine::lease::{BEFORE, Ending, Occupant};
use crate::engine::timer::AlarmId;
use crate::types::error::LossReason;
use crate::types::fencing::FencingToken;
use crate::types::system::clock::Timestamp;

/// What changes during a lease.
#[derive(Debug)]
pub(crate) struct LeaseState {
    /// Why it ended, once it has.
    pub(crate) over: Option<Ending>,
    /// The alarm of the watchdog.
    pub(crate) alarm: Option<AlarmId>,
    /// When the next renewal is due.
    pub(crate) renew_at: Timestamp,
    /// When it was downgraded: answers to earlier renewals say nothing. [`BEFORE`] if it never was.
    pub(crate) downgraded_at: Timestamp,
    /// Whether a renewal is on its way.
    pub(crate) renewing: bool,
    /// Whether somebody waits for those who share the lock, or has waited, as far as the store said.
    pub(crate) wanted: bool,
    /// Whether the last renewal got no definite answer.
    pub(crate) unanswered: bool,
    /// Whether the lease has had its whole ttl.
    pub(super) whole: bool,
    /// Whether the key may have changed hands since the renewal on its way was sent.
    pub(crate) suspect: bool,
    /// When the last renewal was sent that the store confirmed, [`BEFORE`] if there is none.
    pub(super) verified: Timestamp,
    /// Whether the next renewal comes early because the key may have changed hands.
    pub(super) hinted: bool,
    /// How many renewals in a row came early and found nothing changed.
    pub(super) false_hints: u32,
    /// How often its node had had another history when the last command was sent that confirmed the lease.
    pub(super) failovers: u64,
    /// The current holder, or the first of several.
    pub(crate) holder: Option<Weak<dyn Occupant>>,
    /// Those who share the lease with it.
    pub(super) guests: Vec<Weak<dyn Occupant>>,
    /// When that holder has reached its `max_hold`.
    pub(crate) ends_by: Timestamp,
    /// The token given last.
    pub(super) token: FencingToken,
    /// How often the lock was passed on locally.
    pub(super) passes: u32,
    /// Whether its end was passed on, and has arrived at the next caller or at the store.
    pub(super) end_arrived: bool,
    /// The holder that passed it on last, and waits until it has arrived.
    pub(super) releaser: Option<Waker>,
}

impl LeaseState {
    /// Returns the current holder, and those who share the lease with it.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Arc<dyn Occupant>> + use<> {
        let guests: Vec<_> = self.guests.iter().filter_map(Weak::upgrade).collect();
        self.holder.as_ref().and_then(Weak::upgrade).into_iter().chain(guests)
    }

    /// Adds a holder to those who share the lease.
    pub(crate) fn add_guest(&mut self, guest: Weak<dyn Occupant>) {
        if self.guests.len() == self.guests.capacity() {
            self.guests.retain(|guest| guest.strong_count() > 0);
        }
        self.guests.push(guest);
    }

    /// Why the lease ended, if its key is gone although it had time left. `failed_over` says whether failovers of its
    /// node explain that, of which there had been so many when it was last confirmed.
    pub(crate) fn loss_by_others(&self, failed_over: impl FnOnce(u64) -> bool) -> LossReason {
        if failed_over(self.failovers) { LossReason::Failover } else { LossReason::Stolen }
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

impl LeaseState {
    /// Returns how much earlier than planned the next renewal may be sent, to share a command with others. The
    /// first may be sent much earlier, so that locks granted in one burst are not renewed in one burst for ever.
    pub(crate) fn may_be_early(&self, now: Timestamp) -> Duration {
        self.renew_at.since(now) / if self.verified == BEFORE { 2 } else { 20 }
    }

    /// Brings the next renewal forward, because the key may have changed hands. Returns whether
    /// there is anything to do.
    pub(crate) fn suspected(&mut self) -> bool {
        if self.over.is_some() {
            return false;
        }
        if self.renewing {
            // It may have been executed before the change: one more follows, however many hints arrive.
            self.suspect = true;
            return false;
        }
        // Never renewed, so the hint is about an earlier holder of the key.
        self.verified != BEFORE && self.verify_soon()
    }

    pub(super) fn verify_soon(&mut self) -> bool {
        // A store may give false hints again and again, about many keys, and each costs a renewal.
        let soonest = self.verified.after(VERIFY_EVERY.saturating_mul(1 << self.false_hints.min(16)));
        let sooner = soonest < self.renew_at;
        self.hinted |= sooner;
        self.renew_at = self.renew_at.min(soonest);
        sooner
    }
}

/// A key that changes all the time without being lost is verified no more often than this, and half as often
/// each time.
const VERIFY_EVERY: Duration = Duration::from_millis(10);
