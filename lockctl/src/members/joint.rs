//! One lock of a quorum, put together from what its members have.

use std::cmp::Reverse;
use std::time::Duration;

use lock_core::inspect::{EntryState, LockEntry};

/// One lock.
pub(crate) struct Joint<'a> {
    /// The answer of each member, in the order of the URL.
    pub(crate) at: Vec<Option<&'a LockEntry>>,
    /// The lock as a majority has it.
    pub(crate) entry: &'a LockEntry,
    /// How many have that.
    pub(crate) count: usize,
    pub(crate) verdict: Verdict,
}

/// Whether a lock is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Majority,
    /// So few members have it that nobody holds it.
    Minority,
    /// Members that gave no answer may have it too.
    Unknown,
}

impl<'a> Joint<'a> {
    /// Counts what the members have. `silent` gave no answer.
    pub(crate) fn of(at: Vec<Option<&'a LockEntry>>, silent: usize, majority: usize) -> Option<Self> {
        let count_of = |one: &LockEntry| at.iter().flatten().filter(|other| is_same(one, other)).count();
        let entry = at.iter().flatten().copied().max_by_key(|entry| count_of(entry))?;
        let count = count_of(entry);
        let verdict = match () {
            () if count >= majority => Verdict::Majority,
            () if count + silent >= majority => Verdict::Unknown,
            () => Verdict::Minority,
        };
        Some(Self { at, entry, count, verdict })
    }

    pub(crate) fn state(&self) -> &'static str {
        match self.verdict {
            Verdict::Majority => self.entry.state.as_str(),
            Verdict::Minority => "minority",
            Verdict::Unknown => "unknown",
        }
    }

    /// Returns for how much longer so many members have it: until then it is held, or left over. `None` for ever.
    pub(crate) fn lease_left(&self) -> Option<Duration> {
        let mut left: Vec<Duration> = self.same().map(|entry| entry.holder.ttl_left.unwrap_or(Duration::MAX)).collect();
        left.sort_unstable_by_key(|left| Reverse(*left));
        let decides = left.len().min(self.at.len() / 2 + 1);
        left.get(decides.checked_sub(1)?).copied().filter(|left| *left != Duration::MAX)
    }

    /// Returns the lock as the members together have it: with the lease that so many have, since the first of them
    /// granted it. A member that lost the claim and got it back has it as if it were new.
    pub(crate) fn whole(&self) -> LockEntry {
        let mut whole = self.same().max_by_key(|entry| entry.held_for).unwrap_or(self.entry).clone();
        whole.holder.ttl_left = self.lease_left();
        whole
    }

    fn same(&self) -> impl Iterator<Item = &'a LockEntry> {
        self.at.iter().copied().flatten().filter(|other| is_same(self.entry, other))
    }
}

/// Returns whether two members have a lock of the same holder.
pub(crate) fn is_same(one: &LockEntry, other: &LockEntry) -> bool {
    let foreign = |entry: &LockEntry| entry.state == EntryState::Foreign;
    one.holder.owner == other.holder.owner && foreign(one) == foreign(other) && one.foreign_value == other.foreign_value
}
