//! The state of a quorum, as a process knows it.

use std::sync::Arc;

/// The state of a quorum, as this process knows it, with the events since its last report.
///
/// ```
/// use lock_core::{LockEvent, LockObserver, MemberState, Notice};
///
/// struct Members;
///
/// impl LockObserver for Members {
///     fn on_event(&self, _: &LockEvent<'_>) {}
///
///     fn on_notice(&self, notice: &Notice<'_>) {
///         let Notice::Quorum { node, health } = notice else { return };
///         let counted = health.members.iter().filter(|member| member.state == MemberState::Counted).count();
///         println!("{counted} members of {node} count, and {} must", health.majority);
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumHealth {
    /// The members, in the order of the list.
    pub members: Vec<MemberHealth>,
    /// How many of them must grant a lock.
    pub majority: usize,
    /// Locks that this process holds and that not every member confirmed at the last renewal.
    pub degraded_holds: usize,
    /// First rounds of votes since the last report.
    pub rounds: u64,
    /// Second rounds since the last report, because the members had given different tokens.
    pub second_rounds: u64,
}

impl QuorumHealth {
    /// Describes a quorum without events.
    #[must_use]
    pub const fn new(members: Vec<MemberHealth>, majority: usize) -> Self {
        Self { members, majority, degraded_holds: 0, rounds: 0, second_rounds: 0 }
    }
}

/// The state of one member, as this process knows it. See the example of [`QuorumHealth`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberHealth {
    /// Its name, without credentials.
    pub name: Arc<str>,
    /// Whether it counts.
    pub state: MemberState,
    /// How many claims that it had lost were given to it again, since the last report.
    pub repairs: u64,
}

impl MemberHealth {
    /// Describes a member without repairs.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, state: MemberState) -> Self {
        Self { name: name.into(), state, repairs: 0 }
    }
}

/// Whether a member of a quorum counts. See the example of [`QuorumHealth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberState {
    /// It answers, and its votes count.
    Counted,
    /// It has lost its data. It does not count until every lease from before has ended.
    Excluded,
    /// It did not answer, or refused, when it was last asked.
    Away,
    /// It also serves a quorum with other members. Two majorities could then have no member in common, so no lock is
    /// granted.
    Disagrees,
}

impl MemberState {
    /// Returns the state as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Excluded => "excluded",
            Self::Away => "away",
            Self::Disagrees => "disagrees",
        }
    }
}
