//! The state that the rounds of one quorum share.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::contract::backend::{Inbox, MemberList};
use crate::contract::event::{MemberHealth, Notice, QuorumHealth};
use crate::stores::quorum::Restarts;
use crate::stores::quorum::members::health::RoundCounts;
use crate::stores::quorum::members::{Member, MemberTime};
use crate::stores::quorum::session::Sessions;
use crate::stores::quorum::turns::Turns;
use crate::types::error::{LockError, Result};
use crate::types::options::command_timeout;
use crate::types::system::clock::{Clock, Timestamp};
use crate::types::system::sync::Mutex;

/// How often observers are told of the members.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// The state that the rounds of one quorum share.
pub(super) struct Shared {
    pub(super) members: Vec<Member>,
    /// Their names, for metrics and messages.
    pub(super) name: Arc<str>,
    pub(super) list: MemberList,
    pub(super) restarts: Restarts,
    pub(super) sessions: Arc<Sessions>,
    pub(super) turns: Turns,
    pub(super) rounds: RoundCounts,
    pub(super) time: MemberTime,
    /// The newest token that a majority gave.
    pub(super) newest: AtomicU64,
    /// Whether the members were asked which lists are in use.
    pub(super) lists_read: AtomicBool,
    pub(super) clock: OnceLock<Clock>,
    /// The runtimes of the keepers that drive this quorum. Rounds run on the first: they outlive their callers.
    pub(super) home: Mutex<Vec<Handle>>,
}

impl Shared {
    pub(super) fn clock(&self) -> &Clock {
        self.clock.get_or_init(Clock::system)
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| &*member.name).collect()
    }

    /// Returns by member how often it was found to have another history. A member is not a cluster, so it has one lane.
    pub(super) fn failovers(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.backend.failovers(0)).collect()
    }

    /// Refuses leases that outlive the time in which a member does not count.
    pub(super) fn admit_ttl(&self, ttl: Duration) -> Result<()> {
        let most = self.list.max_ttl;
        if ttl <= most {
            return Ok(());
        }
        Err(LockError::misconfigured(format!(
            "a ttl of {ttl:?} exceeds the quorum's max_ttl of {most:?}; use a shorter ttl, or write ?max_ttl={}s after the \
             members in the URL of every process",
            ttl.as_secs_f64().ceil(),
        )))
    }

    /// Refuses locks that this quorum must not give.
    pub(super) fn admit(&self, ttl: Duration) -> Result<()> {
        self.admit_ttl(ttl)?;
        self.admit_list()
    }

    /// Refuses while another list is in use that does not fit ours, and a server that would have two votes.
    pub(super) fn admit_list(&self) -> Result<()> {
        self.members.iter().try_for_each(|member| member.check(&self.list))?;
        let histories: Vec<_> = self.members.iter().map(|member| member.backend.history()).collect();
        let twin = |at: usize| histories[..at].iter().position(|other| other.is_some() && *other == histories[at]);
        let Some((one, other)) = (0..histories.len()).find_map(|at| Some((twin(at)?, at))) else { return Ok(()) };
        Err(LockError::misconfigured(format!(
            "{} and {} have the same data, being one server, or a master and its replica, so one loss would cost two votes; \
             name servers that are independent of each other",
            self.members[one].name, self.members[other].name,
        )))
    }

    /// Returns which members are not asked for a moment, because they did not answer the last release. If the others are
    /// not a majority, all are asked.
    pub(super) fn resting(&self) -> Vec<bool> {
        let mut resting: Vec<bool> = self.members.iter().map(|member| member.owed.is_resting()).collect();
        if resting.iter().filter(|rests| !**rests).count() < self.list.majority {
            resting.fill(false);
        }
        resting
    }

    /// Returns for how much longer a member does not count, whose data go back for `history` only: leases from before may
    /// last, which it has forgotten. `kept_for` is how long a release may have kept this lock taken: nobody holds such a
    /// lock any more, and so nobody gives it to the member again.
    pub(super) fn excluded_for(&self, history: Duration, kept_for: Duration) -> Option<Duration> {
        if self.restarts == Restarts::Remember {
            return None;
        }
        let longest = self.members.iter().map(Member::longest_ttl).max().unwrap_or_default();
        let longest = longest.max(self.list.max_ttl).max(kept_for);
        (longest + command_timeout(longest)).checked_sub(history).filter(|left| !left.is_zero())
    }

    /// Publishes the state of the members repeatedly. Each count is published once, also if several keepers publish.
    pub(super) async fn report(&self, inbox: Inbox) {
        let clock = self.clock();
        loop {
            clock.sleep_until(clock.now().after(TOLD_EVERY)).await;
            inbox.notice(&Notice::Quorum { node: &self.name, health: &self.health(clock.now()) });
        }
    }

    fn health(&self, now: Timestamp) -> QuorumHealth {
        let members = self.members.iter().map(|member| {
            let mut health = MemberHealth::new(Arc::clone(&member.name), member.health.state(now));
            health.repairs = member.health.take_repairs();
            health
        });
        let mut health = QuorumHealth::new(members.collect(), self.list.majority);
        health.degraded_holds = self.sessions.degraded(now);
        (health.rounds, health.second_rounds) = self.rounds.take();
        health
    }
}

/// For how long a member may answer.
pub(super) fn patience(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(20), Duration::from_millis(250))
}
