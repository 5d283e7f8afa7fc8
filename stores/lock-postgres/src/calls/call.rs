//! What the database is asked.

use std::time::Duration;

use lock_core::{
    AcquireRequest, Attempt, AttemptAll, Blocked, Claim, DoneMark, Freed, Holder, JobRecord, JobVersion, LockEntry,
    LockKey, Release, Renewal, Result, Revocation, ScanPage, Timestamp, Waiter,
};
use tokio::sync::oneshot;

/// A mark to write: who has the lock, for which version, and for how long.
pub(crate) type Mark = (Claim, JobVersion, Option<Duration>);

/// One step of a walk: the prefix of the keys, how many to look at, and the last key before them.
pub(crate) type Step = (String, u32, Option<String>);

/// A question, where its answer goes, and when it was asked.
pub(crate) struct Asked<Q, A> {
    pub(crate) question: Q,
    pub(crate) answer: oneshot::Sender<A>,
    pub(crate) since: Timestamp,
}

/// What the database is asked.
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

/// What leaves together.
pub(crate) enum Batch {
    Acquires(Vec<Asked<AcquireRequest, Result<Attempt>>>),
    Releases(Vec<Asked<Release, Result<Freed>>>),
    One(Box<Call>),
}

impl Batch {
    /// Returns whether it may make the tables if they are missing: whoever only looks finds none.
    pub(crate) fn may_make(&self) -> bool {
        let Self::One(call) = self else { return true };
        !matches!(
            **call,
            Call::Blocked(_)
                | Call::Holder(_)
                | Call::LastRun(_)
                | Call::ForgetDone(_)
                | Call::Scan(_)
                | Call::Entry(_)
                | Call::Waiters(_)
                | Call::Revoke(_)
        )
    }
}
