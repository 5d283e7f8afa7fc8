//! What this process has learned of the members by using them, for its observers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::Inbox;
use crate::clock::Timestamp;
use crate::event::{MemberHealth, MemberState, Notice, QuorumHealth};
use crate::quorum::shared::Shared;

/// How often observers are told.
const EVERY: Duration = Duration::from_secs(2);

/// What is known of one member.
#[derive(Debug, Default)]
pub(super) struct Health {
    away: AtomicBool,
    /// Whether another list is in use there that does not fit ours.
    disagrees: AtomicBool,
    /// Until when it does not count, in nanoseconds of the clock.
    excluded_until: AtomicU64,
    repairs: AtomicU64,
}

impl Health {
    /// Notes whether it answered.
    pub(super) fn answered(&self, answered: bool) {
        self.away.store(!answered, Ordering::Relaxed);
    }

    /// Notes whether another list is in use there that does not fit ours.
    pub(super) fn disagrees(&self, disagrees: bool) {
        self.disagrees.store(disagrees, Ordering::Relaxed);
    }

    /// Notes until when it does not count.
    pub(super) fn excluded_until(&self, until: Timestamp) {
        self.excluded_until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Notes that a claim that it had lost was given to it again.
    pub(super) fn repaired(&self) {
        self.repairs.fetch_add(1, Ordering::Relaxed);
    }

    fn state(&self, now: Timestamp) -> MemberState {
        if self.disagrees.load(Ordering::Relaxed) {
            MemberState::Disagrees
        } else if self.away.load(Ordering::Relaxed) {
            MemberState::Away
        } else if self.excluded_until.load(Ordering::Relaxed) > now.as_nanos() {
            MemberState::Excluded
        } else {
            MemberState::Counted
        }
    }
}

/// The rounds since the last report.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    first: AtomicU64,
    second: AtomicU64,
}

impl Rounds {
    pub(super) fn count(&self, second: bool) {
        let rounds = if second { &self.second } else { &self.first };
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells observers again and again. What is counted is told once, also if several keepers tell.
pub(super) async fn report(shared: Arc<Shared>, inbox: Inbox) {
    let clock = shared.clock();
    loop {
        clock.sleep_until(clock.now().after(EVERY)).await;
        inbox.notice(&Notice::Quorum { node: &shared.name, health: &shared.health(clock.now()) });
    }
}

impl Shared {
    fn health(&self, now: Timestamp) -> QuorumHealth {
        let members = self.members.iter().map(|member| {
            let mut health = MemberHealth::new(Arc::clone(&member.name), member.health.state(now));
            health.repairs = member.health.repairs.swap(0, Ordering::Relaxed);
            health
        });
        let mut health = QuorumHealth::new(members.collect(), self.list.majority);
        health.degraded_holds = self.sessions.degraded(now);
        health.rounds = self.rounds.first.swap(0, Ordering::Relaxed);
        health.second_rounds = self.rounds.second.swap(0, Ordering::Relaxed);
        health
    }
}
