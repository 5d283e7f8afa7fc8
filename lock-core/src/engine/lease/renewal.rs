//! The request of a renewal, and the plan after its answer.

use std::time::Duration;

use crate::engine::lease::{BEFORE, Lease, LeaseState, deadline_of};
use lock_store::types::system::clock::Timestamp;

impl Lease {
    /// Returns what a renewal asks for. A fixed lease is not extended: the store only confirms the time that is left, or
    /// gives the next part of it.
    pub(crate) fn asks_for(&self, state: &LeaseState, now: Timestamp) -> RenewalRequest {
        match (self.renew_every, state.whole) {
            (None, true) => RenewalRequest::Check(self.deadline().since(now)),
            (None, false) if state.promised != BEFORE => RenewalRequest::Renewal(state.promised.since(now)),
            _ => RenewalRequest::Renewal(self.claim.ttl),
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

/// The request of a renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewalRequest {
    /// Extend the lease to this time from now.
    Renewal(Duration),
    /// Check that a fixed lease still exists, with this much time left.
    Check(Duration),
}

impl RenewalRequest {
    pub(crate) fn ttl(self) -> Duration {
        match self {
            Self::Renewal(ttl) | Self::Check(ttl) => ttl,
        }
    }
}
