//! What a process knows of a quorum.

use std::sync::Arc;

/// What this process knows of a quorum, and what has happened there since it last said so.
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
    /// Locks that this process holds, and that not every member confirmed when they were last renewed.
    pub degraded_holds: usize,
    /// First rounds of votes, since the last report.
    pub rounds: u64,
    /// Second rounds, because the members had given different tokens, since the last report.
    pub second_rounds: u64,
}

impl QuorumHealth {
    /// Describes a quorum in which nothing has happened.
    #[must_use]
    pub const fn new(members: Vec<MemberHealth>, majority: usize) -> Self {
        Self { members, majority, degraded_holds: 0, rounds: 0, second_rounds: 0 }
    }
}

/// What this process knows of one member. See the example of [`QuorumHealth`].
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
    /// Describes a member to which no claim was given again.
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
    /// It has lost its data, and does not count until every lease from before has ended.
    Excluded,
    /// It did not answer, or refused, when it was last asked.
    Away,
    /// It serves a quorum of other members too, so that two majorities could miss each other: no lock is granted.
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
