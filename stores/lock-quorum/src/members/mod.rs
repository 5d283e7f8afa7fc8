//! The members of a quorum: which lists of them fit together, and what time it is there.

pub(crate) mod failovers;
pub(crate) mod health;
pub(crate) mod owed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::members::health::Health;
use crate::members::owed::Owed;
use lock_store::contract::backend::{AnyBackend, DynBackend, MemberList};
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::system::clock::Timestamp;
use lock_store::types::system::random;
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: Arc<str>,
    pub(super) backend: Arc<dyn DynBackend>,
    pub(super) health: Health,
    /// The releases that it has not confirmed.
    pub(super) owed: Arc<Owed>,
    /// Whether it remembers our list.
    joined: AtomicBool,
    /// The lists that it remembered when it was last asked.
    lists: Mutex<Vec<MemberList>>,
}

impl Member {
    pub(super) fn new(member: AnyBackend) -> Self {
        let name = member.name().into();
        let (joined, lists) = (AtomicBool::new(false), Mutex::default());
        Self { name, backend: member.backend, health: Health::default(), owed: Arc::default(), joined, lists }
    }

    pub(super) fn backend(&self) -> Arc<dyn DynBackend> {
        Arc::clone(&self.backend)
    }

    /// Returns the longest lease that anybody takes of this member, as far as it remembers.
    pub(super) fn longest_ttl(&self) -> Duration {
        self.lists().iter().map(|list| list.max_ttl).max().unwrap_or_default()
    }

    /// Learns which lists it remembers, and has it remember nothing.
    pub(super) async fn read(&self, list: &MemberList) -> Result<()> {
        *self.lists() = self.backend().remember(None, kept(list)).await?;
        self.check(list)
    }

    /// Has the member remember our list, unless it does. A list that does not fit those in use is not remembered.
    pub(super) async fn join(&self, list: &MemberList) -> Result<()> {
        if self.joined.load(Ordering::Acquire) {
            return self.check(list);
        }
        self.read(list).await?;
        self.refresh(list).await
    }

    /// Has the member remember our list for longer; not for the first time if `fits` is false for another member.
    pub(super) async fn remain(&self, list: &MemberList, fits: bool) -> Result<()> {
        match self.joined.load(Ordering::Acquire) {
            true => self.refresh(list).await,
            false if fits => self.join(list).await,
            false => self.read(list).await,
        }
    }

    async fn refresh(&self, list: &MemberList) -> Result<()> {
        *self.lists() = self.backend().remember(Some(list.clone()), kept(list)).await?;
        self.joined.store(true, Ordering::Release);
        self.check(list)
    }

    /// Refuses if another list is in use at this member that does not fit ours.
    pub(super) fn check(&self, list: &MemberList) -> Result<()> {
        let lists = self.lists();
        let other = lists.iter().find(|other| !fit_together(list, other));
        self.health.disagrees(other.is_some());
        let Some(other) = other else { return Ok(()) };
        Err(LockError::misconfigured(format!(
            "{} also serves a quorum of {} of the members {}, while ours is {} of {}: two majorities without a \
             common member could both grant a lock; write the same list in every process, and add or remove one \
             member at a time; an unused list is forgotten after {:?}",
            self.name,
            other.majority,
            other.names.join(", "),
            list.majority,
            list.names.join(", "),
            kept(other),
        )))
    }

    fn lists(&self) -> MutexGuard<'_, Vec<MemberList>> {
        self.lists.lock()
    }
}

/// For how long a list is remembered. Leases outlive its last use by `max_ttl`.
fn kept(list: &MemberList) -> Duration {
    list.max_ttl * 3
}

/// How often a list is remembered anew.
pub(super) fn refreshed_every(list: &MemberList) -> Duration {
    list.max_ttl.min(Duration::from_secs(60)) / 3
}

/// Returns whether every majority of one list meets every majority of the other.
///
/// Both can grant one lock only if each finds its majority among the members that the other does not have and
/// those that they share.
pub(super) fn fit_together(one: &MemberList, other: &MemberList) -> bool {
    let shared = one.names.iter().filter(|name| other.names.contains(name)).count();
    let needs = |list: &MemberList| list.majority.saturating_sub(list.names.len() - shared);
    needs(one) + needs(other) > shared
}

/// How far ahead of the members' clocks a token is proposed, at least and at most, so that none of them has passed
/// it when it is asked.
const LEAD: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// By how many ms clocks may differ that are both right.
const AGREE: u64 = 1000;

/// How old a reading of the members' clocks may become while none is later.
const READING_KEPT: Duration = Duration::from_secs(10);

/// How many sequence numbers one millisecond has.
const SEQUENCE: u64 = 1 << 13;

/// Among how many numbers of a millisecond a proposal is drawn: its first half, which leaves room above.
const PROPOSALS: u32 = 1 << 12;

/// The clocks of the members, as far as this process knows.
#[derive(Debug)]
pub(super) struct MemberTime(Mutex<Vec<Option<Reading>>>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    ms: u64,
    at: Timestamp,
    /// How long a round takes.
    round_trip: Duration,
}

impl MemberTime {
    pub(super) fn of(members: usize) -> Self {
        Self(Mutex::new(vec![None; members]))
    }

    /// Notes what time a member said it was.
    pub(super) fn observe(&self, member: usize, ms: u64, asked: Timestamp, now: Timestamp) {
        let mut readings = self.readings();
        let later = |known: Reading| ms > known.at(now) || now.since(known.at) > READING_KEPT;
        if readings[member].is_none_or(later) {
            readings[member] = Some(Reading { ms, at: now, round_trip: now.since(asked) });
        }
    }

    /// Proposes what the next token is to exceed: a little more than the clocks of a majority would give. As many clocks
    /// as a majority can spare may be ahead and do not count, unless they agree with the others. Zero while no other is known.
    ///
    /// Processes that propose at the same moment rarely propose the same.
    pub(super) fn proposal(&self, majority: usize, now: Timestamp) -> FencingToken {
        let known = self.readings();
        let members = known.len();
        let mut readings: Vec<Reading> = known.iter().flatten().copied().collect();
        drop(known);
        readings.sort_unstable_by_key(|reading| reading.at(now));
        let minority = members - majority;
        let Some(sure) = readings.len().checked_sub(minority + 1).map(|place| readings[place]) else {
            return FencingToken::default();
        };
        let agrees = |reading: &&Reading| reading.at(now) <= sure.at(now).saturating_add(AGREE);
        let reading = readings.iter().take(majority).rfind(agrees).copied().unwrap_or(sure);
        let lead = (LEAD.0 + 2 * reading.round_trip).min(LEAD.1);
        let ms = reading.at(now).saturating_add(millis(lead));
        let block = ms.saturating_mul(SEQUENCE).saturating_add(u64::from(random::below(PROPOSALS)));
        FencingToken::new(block.saturating_mul(FencingToken::PER_GRANT))
    }

    fn readings(&self) -> MutexGuard<'_, Vec<Option<Reading>>> {
        self.0.lock()
    }
}

impl Reading {
    fn at(&self, now: Timestamp) -> u64 {
        self.ms.saturating_add(millis(now.since(self.at)))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_testing::limit;

    use super::{MemberTime, fit_together};
    use lock_store::contract::backend::MemberList;
    use lock_store::types::fencing::FencingToken;
    use lock_store::types::system::clock::Timestamp;

    fn list(majority: usize, names: &str) -> MemberList {
        MemberList::new(names.chars().map(String::from).collect(), majority, Duration::from_secs(60))
    }

    /// Tries every pair of majorities.
    fn always_meet(one: &MemberList, other: &MemberList) -> bool {
        let subsets = |list: &MemberList| -> Vec<Vec<String>> {
            let names = list.names.clone();
            let pick = |bits: u32| names.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
            let sets = (0..1_u32 << names.len()).filter(|bits| bits.count_ones() as usize == list.majority);
            sets.map(|bits| pick(bits).map(|(_, name)| name.clone()).collect()).collect()
        };
        subsets(one).iter().all(|a| subsets(other).iter().all(|b| a.iter().any(|name| b.contains(name))))
    }

    #[test]
    #[limit]
    fn lists_fit_together_exactly_if_their_majorities_always_meet() {
        let lists = [
            list(2, "abc"),
            list(3, "abcd"),
            list(2, "abd"),
            list(3, "abcde"),
            list(3, "abcdf"),
            list(3, "abc"),
            list(4, "abcdef"),
            list(2, "ade"),
            list(3, "defgh"),
        ];
        for one in &lists {
            for other in &lists {
                assert_eq!(fit_together(one, other), always_meet(one, other), "{one:?} {other:?}");
            }
        }
        assert!(fit_together(&list(2, "abc"), &list(3, "abcd")), "one added");
        assert!(!fit_together(&list(2, "abc"), &list(2, "abd")), "one replaced");
    }

    #[test]
    #[limit]
    fn a_list_survives_being_written() {
        let list = list(3, "ecbda");
        assert_eq!(MemberList::from_text(&list.to_text()), Some(list));
        for bad in ["", "3", "x|1|a", "3|x|a"] {
            assert_eq!(MemberList::from_text(bad), None, "{bad}");
        }
    }

    #[test]
    #[limit]
    fn proposals_lie_ahead_of_a_majority() {
        let (time, at) = (MemberTime::of(3), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
        let ms = |token: FencingToken| token.get() >> 20;
        time.observe(0, 4_000, at(0), at(1));
        assert_eq!(time.proposal(2, at(1)), FencingToken::default(), "one member's clock may be wrong");
        time.observe(1, 5_000, at(0), at(1));
        assert_eq!(ms(time.proposal(2, at(1))), 5_007);
        let two = MemberTime::of(3);
        two.observe(0, 4_000, at(0), at(1));
        two.observe(1, 3_600_000, at(0), at(1));
        assert_eq!(ms(two.proposal(2, at(1))), 4_007, "the third, which is not known, may agree with either");
        // Neither an hour ahead nor an hour behind changes anything.
        time.observe(2, 3_600_000, at(1), at(1));
        assert_eq!(ms(time.proposal(2, at(3))), 5_009);
        time.observe(0, 0, at(11_002), at(11_002));
        assert_eq!(ms(time.proposal(2, at(11_002))), 16_008);
        // After a while an earlier reading is better than an old one: a clock may have been set back.
        time.observe(1, 4_000, at(11_002), at(11_002));
        assert_eq!(ms(time.proposal(2, at(11_002))), 4_005);
    }
}
