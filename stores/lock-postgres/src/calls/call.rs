//! The calls to the database.

use std::time::Duration;

use lock_core::{Holder, LockError, LockKey, Result, Timestamp};
use lock_store::{
    AcquireRequest, Attempt, AttemptAll, Blocked, Claim, DoneMark, Freed, JobRecord, JobVersion, LockEntry, Release,
    Renewal, Revocation, ScanPage, Waiter,
};
use tokio::sync::oneshot;

use crate::error::{is_blocked, is_of_a_value};

/// A mark to write: who has the lock, for which version, and for how long.
pub(crate) type Mark = (Claim, JobVersion, Option<Duration>);

/// One step of a walk: the prefix of the keys, how many to look at, and the last key before them as
/// the database writes it.
pub(crate) type Step = (String, u32, Option<Vec<u8>>);

/// A question, where its answer goes, and when it was asked.
pub(crate) struct Asked<Q, A> {
    pub(crate) question: Q,
    pub(crate) answer: oneshot::Sender<A>,
    pub(crate) since: Timestamp,
}

/// A question to the database.
pub(crate) enum Call {
    Acquire(Asked<AcquireRequest, Result<Attempt>>),
    Release(Asked<Release, Result<Freed>>),
    Renew(Asked<Vec<Claim>, Vec<Result<Renewal>>>),
    AcquireAll(Asked<Vec<AcquireRequest>, Result<AttemptAll>>),
    SetBlocked(Asked<(LockKey, Option<Blocked>), Result<()>>),
    Blocked(Asked<LockKey, Result<Option<Blocked>>>),
    Holder(Asked<LockKey, Result<Option<Holder>>>),
    LastRun(Asked<LockKey, Result<Option<JobRecord>>>),
    Done(Asked<(LockKey, JobVersion), Result<Option<DoneMark>>>),
    MarkDone(Asked<Mark, Result<bool>>),
    ForgetDone(Asked<(LockKey, JobVersion), Result<bool>>),
    Scan(Asked<Step, Result<ScanPage>>),
    Entry(Asked<LockKey, Result<Option<LockEntry>>>),
    Waiters(Asked<LockKey, Result<Vec<Waiter>>>),
    Revoke(Asked<(LockKey, Revocation), Result<Freed>>),
    Ping(Asked<(), Result<()>>),
    Sweep(Asked<(), Result<()>>),
}

impl Call {
    /// Returns the keys whose rows it locks.
    pub(crate) fn keys(&self) -> Vec<&LockKey> {
        match self {
            Self::Acquire(asked) => vec![&asked.question.claim.key],
            Self::Release(asked) => vec![&asked.question.claim.key],
            Self::AcquireAll(asked) => asked.question.iter().map(|request| &request.claim.key).collect(),
            Self::MarkDone(asked) => vec![&asked.question.0.key],
            Self::Revoke(asked) => vec![&asked.question.0],
            _ => Vec::new(),
        }
    }

    /// Returns whether it may make the tables if they are missing: a call that only looks finds none.
    pub(crate) fn may_make(&self) -> bool {
        !matches!(
            self,
            Self::Blocked(_)
                | Self::Holder(_)
                | Self::LastRun(_)
                | Self::ForgetDone(_)
                | Self::Scan(_)
                | Self::Entry(_)
                | Self::Waiters(_)
                | Self::Revoke(_)
        )
    }
}

/// Calls that leave together.
pub(crate) enum Batch {
    Acquires(Vec<Asked<AcquireRequest, Result<Attempt>>>),
    Releases(Vec<Asked<Release, Result<Freed>>>),
    One(Box<Call>),
}

impl Batch {
    /// Returns the keys whose rows it locks, each once.
    pub(super) fn keys(&self) -> Vec<LockKey> {
        let mut keys: Vec<LockKey> = match self {
            Self::Acquires(asked) => asked.iter().map(|one| one.question.claim.key.clone()).collect(),
            Self::Releases(asked) => asked.iter().map(|one| one.question.claim.key.clone()).collect(),
            Self::One(call) => call.keys().into_iter().cloned().collect(),
        };
        keys.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        keys.dedup();
        keys
    }

    /// Returns whether a lock may be held after it.
    pub(crate) fn takes_locks(&self) -> bool {
        match self {
            Self::Acquires(_) => true,
            Self::Releases(_) => false,
            Self::One(call) => matches!(**call, Call::Acquire(_) | Call::AcquireAll(_)),
        }
    }
}

/// The outcome of a batch.
#[derive(Default)]
pub(crate) struct Sent {
    /// The server takes no writes: another one may be the primary now.
    pub(crate) moved_away: bool,
    /// Keys whose rows a transaction of somebody else keeps locked.
    pub(super) blocked: Vec<LockKey>,
    /// Keys whose rows could be locked.
    pub(super) free: Vec<LockKey>,
    /// Calls to send again, each alone: the row of one of them kept all of them waiting.
    pub(super) again: Vec<Call>,
}

/// Calls of one kind that left together, and failed.
pub(super) struct Failed<Q, A> {
    pub(super) error: LockError,
    pub(super) asked: Vec<Asked<Q, Result<A>>>,
}

impl<Q, A> Failed<Q, A> {
    /// Gives the calls their error. If it may concern only one of several keys, or the values of one call, they are sent `again` instead,
    /// each alone.
    pub(super) fn answer(
        self,
        keys: usize,
        call: impl Fn(Asked<Q, Result<A>>) -> Call,
        again: &mut Vec<Call>,
    ) -> LockError {
        // Releases of one key have no other values in which they could differ.
        if keys > 1 && (is_blocked(&self.error) || is_of_a_value(&self.error)) {
            again.extend(self.asked.into_iter().map(call));
        } else {
            self.asked.into_iter().for_each(|one| drop(one.answer.send(Err(self.error.clone()))));
        }
        self.error
    }
}
