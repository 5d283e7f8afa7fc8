//! Jobs that every instance starts and one instance runs: at most once in a period, once per tick, or once per fire
//! time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::api::guard::LockGuard;
use crate::api::lock::{LockRequest, unless_busy};
use crate::api::protect;
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::MAX_TTL;
use lock_store::types::system::clock::wall_clock;

/// The shortest period. A start of a schedule may be late by a tenth of the period.
const MIN_PERIOD: Duration = Duration::from_secs(1);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long the run of a fire time is remembered.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long before its time a run may have started elsewhere, by a clock that is ahead.
const EARLY: Duration = Duration::from_secs(3600);

impl LockRequest {
    /// Makes this the lock of a job that runs at most once in a period, on the instance that starts it first.
    ///
    /// A start is skipped if the job is running, or has already run in this period. While the job runs, the lease is
    /// the ttl. The key stays taken for the whole period from the start of the run, by the server's time.
    ///
    /// This is for jobs that are started more often than they may run. With a schedule of exactly this period, a start
    /// that comes slightly earlier after its tick than the last one would be skipped. Use
    /// [`once_every`](Self::once_every) for such a schedule.
    ///
    /// If a job's process dies, the key is freed after the ttl, and the run does not count. A run also does not count
    /// if the store could not be told of its end before the lease ended. [`Job::run_once_even_if_crashed`] changes
    /// that.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use lock_core::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let hourly = || locks.lock("cron:report").at_most_every(Duration::from_secs(3600));
    /// assert_eq!(hourly().run(async |_| Ok::<_, LockError>("written")).await?, Some("written"));
    /// assert_eq!(hourly().run(async |_| Ok::<_, LockError>("again")).await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn at_most_every(self, period: Duration) -> Job {
        Job { request: self.for_job_every(period, period), retry_failed: false }
    }

    /// Makes this the lock of a job that a schedule starts once in a period, on every instance. It runs once for each
    /// tick.
    ///
    /// Like [`at_most_every`](Self::at_most_every), but the key is free a tenth of the period before the next tick.
    /// Ticks may therefore be early or late by a tenth, and none is lost or runs twice. Starts outside the schedule run
    /// as soon as nine tenths have passed. A start that is later than a tenth loses the next tick;
    /// [`once_at`](Self::once_at) loses none.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// // From the crontab of every host: 0 3 * * *
    /// let nightly = locks.lock("cron:report").once_every(Duration::from_secs(24 * 3600));
    /// nightly.run(async |_| Ok::<_, LockError>(())).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_every(self, period: Duration) -> Job {
        Job { request: self.for_job_each(period), retry_failed: false }
    }

    /// Makes this the lock of a job that runs once for the time at which it was scheduled, however late it starts.
    ///
    /// The run has a key of its own: `cron:report#@1763776800`, with the whole seconds since 1970. It stays taken for a
    /// week after the start. Another lock cannot have that key, because `#` is encoded in values of a template. A
    /// scheduler that is hours behind therefore still runs each time once.
    ///
    /// A fire time that is more than six days old is refused, because it is unknown whether it ran. A fire time more
    /// than a day ahead is refused too.
    ///
    /// `time` is a `SystemTime` or a type that converts to it, like the times of `chrono` and `time`. Every instance
    /// must compute the same time: the time of the schedule, and not the present.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager, scheduled: SystemTime) -> Result<(), LockError> {
    /// locks.lock("cron:report").once_at(scheduled).run(async |_| Ok::<_, LockError>(())).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_at(self, time: impl Into<SystemTime>) -> Job {
        Job { request: self.for_job_at(time.into()), retry_failed: false }
    }

    /// A job that runs again a tenth before a period after its start.
    pub(crate) fn for_job_each(self, period: Duration) -> Self {
        self.for_job_every(period, period / 10 * 9)
    }

    /// A job with a period. Its key stays taken for `kept` from its start.
    pub(crate) fn for_job_every(self, period: Duration, kept: Duration) -> Self {
        if period < MIN_PERIOD {
            return self.refused(LockError::misconfigured(format!(
                "a job cannot run every {period:?}; use at least {MIN_PERIOD:?}, or a plain lock"
            )));
        }
        if kept > MAX_TTL {
            return self.refused(LockError::misconfigured(format!(
                "a job every {} days would keep its key for longer than the limit of {} days; use once_at with the time of its \
                 schedule",
                period.as_secs() / DAY.as_secs(),
                MAX_TTL.as_secs() / DAY.as_secs(),
            )));
        }
        self.for_a_job(Some(period)).without_waiting().with_min_hold(kept)
    }

    pub(crate) fn for_job_at(self, time: SystemTime) -> Self {
        let Ok(fire) = time.duration_since(UNIX_EPOCH) else {
            return self.refused(LockError::misconfigured(
                "the fire time of the job lies before 1970; use the time of its schedule",
            ));
        };
        if wall_clock().duration_since(time).is_ok_and(|late| late + DAY > REMEMBERED) {
            return self.refused(LockError::misconfigured(
                "the fire time of the job is more than six days ago, so it is unknown whether it ran; skip it",
            ));
        }
        if time.duration_since(wall_clock()).is_ok_and(|early| early > DAY) {
            return self.refused(LockError::misconfigured(
                "the fire time of the job is more than a day ahead, and a run is forgotten after a week; start the job at \
                 its time",
            ));
        }
        self.for_a_job(None)
            .with_key_suffix(&format!("#@{}", fire.as_secs()))
            .without_waiting()
            .with_min_hold(REMEMBERED)
            .kept_since(time - EARLY)
    }
}

/// A job that only one of many instances runs. Made by [`LockRequest::at_most_every`], which has an example of [`Job`],
/// [`LockRequest::once_every`] and [`LockRequest::once_at`].
#[must_use = "nothing runs until run is called"]
#[derive(Debug)]
pub struct Job {
    request: LockRequest,
    retry_failed: bool,
}

impl Job {
    /// Does not count a run that returned `Err` or panicked. The next start, on any instance, runs again.
    pub fn retry_failed(mut self) -> Self {
        self.retry_failed = true;
        self
    }

    /// Also counts a run whose process died: the key is taken for the whole time before the body starts.
    pub fn run_once_even_if_crashed(mut self) -> Self {
        self.request = self.request.kept_if_crashed();
        self
    }

    /// Sets the age at which alerts call a run stuck. For [`LockRequest::at_most_every`] and
    /// [`LockRequest::once_every`], the default is the period, if that is longer than three times the ttl. A run of
    /// [`LockRequest::once_at`] is never called stuck.
    pub fn with_stuck_after(mut self, age: Duration) -> Self {
        self.request = self.request.with_stuck_after(age);
        self
    }

    /// Runs `body`, and returns its output. Returns `None` if the job runs elsewhere or has already run.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lock_core::{LockError, LockManager};
    /// # fn demo(locks: LockManager) {
    /// tokio::spawn(async move {
    ///     let report = locks.lock("cron:report").at_most_every(Duration::from_secs(3600));
    ///     report.run(async move |guard| Ok::<_, LockError>(guard.token())).await
    /// });
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `body`, or an error of [`LockRequest::run`]. A taken lock is not an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background. The run counts, unless
    /// [`retry_failed`](Self::retry_failed) was set.
    pub async fn run<T, E: From<LockError>>(
        self,
        body: impl AsyncFnOnce(&LockGuard) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let Some(guard) = self.request.try_acquire().await? else { return Ok(None) };
        guard.set_min_hold(!self.retry_failed);
        let outcome = protect::run(guard, async |guard| {
            let outcome = body(guard).await;
            guard.set_min_hold(!self.retry_failed || outcome.is_ok());
            guard.set_succeeded(outcome.is_ok());
            outcome
        });
        outcome.await?.map(Some)
    }

    /// Runs `body` in this thread, and returns its output. Returns `None` if the job runs elsewhere or has already run.
    ///
    /// # Errors
    ///
    /// Like [`run`](Self::run). If the lock is lost, the body runs to its end, and its outcome is replaced by the loss.
    pub fn run_blocking<T, E: From<LockError>>(
        self,
        body: impl FnOnce(&LockGuard) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let Some(guard) = unless_busy(self.request.acquire_blocking())? else { return Ok(None) };
        guard.set_min_hold(!self.retry_failed);
        let outcome = protect::call(Some(&guard), || body(&guard));
        guard.set_min_hold(!self.retry_failed || outcome.is_ok());
        guard.set_succeeded(outcome.is_ok());
        protect::release_blocking(guard)?;
        outcome.map(Some)
    }
}
