//! Records of the runs of a job.

use std::future::Future;
use std::time::Duration;

use crate::types::error::Result;
use crate::types::key::LockKey;
use crate::types::owner::HolderInfo;

/// The longest time by which a record outlives its period.
const A_WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// The part of a store that remembers the runs of jobs. It records the [run](crate::Release::run) that ends with a
/// claim. Without it, an instance that starts does not know earlier runs.
///
/// See the example of [`LockBackend`](crate::LockBackend).
pub trait JobRecords: Send + Sync {
    /// Returns the record of the job whose lock this is.
    fn last_run(&self, key: &LockKey) -> impl Future<Output = Result<Option<JobRecord>>> + Send;
}

/// A run of a job that ends with its claim. Part of a [`Release`](crate::Release).
///
/// See the example of [`JobRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRun {
    /// The period of the job.
    pub every: Duration,
    /// Whether the run ended without an error.
    pub succeeded: bool,
}

impl JobRun {
    /// Describes a run that ends.
    #[must_use]
    pub fn new(every: Duration, succeeded: bool) -> Self {
        Self { every, succeeded }
    }

    /// Returns how long a store remembers it: ten periods, but no more than a week beyond the first.
    #[must_use]
    pub fn kept_for(&self) -> Duration {
        self.every.saturating_mul(10).min(self.every.saturating_add(A_WEEK))
    }
}

/// A store's record of a job that has a period.
///
/// It is written when a run ends, and kept for [`JobRun::kept_for`]. It therefore still exists when the next run is
/// missing.
///
/// ```
/// use std::time::Duration;
/// # use lock_core::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let hourly = locks.lock("cron:report").at_most_every(Duration::from_secs(3600));
/// hourly.run(async |_| Ok::<_, LockError>(())).await?;
/// let record = locks.last_run("cron:report").await?.expect("it has just run");
/// assert!(record.succeeded && record.overdue().is_none());
/// println!("last run by {}, {:?} ago", record.info, record.started_ago);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRecord {
    /// The period of the job, as the last run had it.
    pub every: Duration,
    /// The process and call site that ran it last.
    pub info: HolderInfo,
    /// How long ago that run started, by the store's clock.
    pub started_ago: Duration,
    /// Whether that run ended without an error.
    pub succeeded: bool,
    /// How long ago the last successful run started. If no run has succeeded, this counts from the first recorded run.
    pub without_success_for: Duration,
}

impl JobRecord {
    /// Describes a job by its last run.
    #[must_use]
    pub fn new(run: JobRun, info: HolderInfo, started_ago: Duration, without_success_for: Duration) -> Self {
        Self { every: run.every, info, started_ago, succeeded: run.succeeded, without_success_for }
    }

    /// Returns how long a successful run has been missing. It counts from one period after the start of the last
    /// successful run. `None` before that, and while the delay is at most a tenth of a period.
    #[must_use]
    pub fn overdue(&self) -> Option<Duration> {
        self.without_success_for.checked_sub(self.every).filter(|late| *late > self.every / 10)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{JobRecord, JobRun};
    use crate::types::owner::HolderInfo;

    #[test]
    fn a_late_start_is_not_overdue_at_once() {
        let hour = Duration::from_secs(3600);
        let overdue = |since: Duration| {
            let run = JobRun::new(hour, true);
            JobRecord::new(run, HolderInfo::new("h", 1, "s"), since, since).overdue()
        };
        assert_eq!((overdue(hour / 2), overdue(hour), overdue(hour + hour / 10)), (None, None, None));
        assert_eq!(overdue(3 * hour), Some(2 * hour));
    }

    #[test]
    fn it_is_remembered_for_ten_periods_or_a_week_more_than_one() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));
        assert_eq!(JobRun::new(second, true).kept_for(), 10 * second);
        assert_eq!(JobRun::new(day, true).kept_for(), 8 * day);
        assert_eq!(JobRun::new(Duration::MAX, true).kept_for(), Duration::MAX);
    }
}
