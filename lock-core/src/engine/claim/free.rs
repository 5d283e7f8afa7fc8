//! Tells the store that a claim has ended, and retries until the store answers.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::lease::Lease;
use crate::engine::shared::{Caller, Engine};
use lock_store::contract::backend::{Claim, Freed, JobRun, Release};
use lock_store::types::error::{LockErrorKind, LossReason, Result};
use lock_store::types::options::command_timeout;
use lock_store::types::system::clock::{Timestamp, jitter};

/// A time before every other time.
pub(crate) const PAST: Timestamp = Timestamp::from_nanos(0);

/// How a release ended.
///
/// ```
/// use lock_core::ReleaseOutcome;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let guard = locks.lock("report").await?;
/// match guard.release().await? {
///     ReleaseOutcome::AlreadyLost(reason) => println!("the end of the work ran without the lock: {reason}"),
///     _ => println!("released"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock was held until now. The store has freed it, or another caller of this process has it.
    Released,
    /// The lock was held until now. The store is told in the background, as the request asked.
    InBackground,
    /// The lock had been lost before, for this reason.
    AlreadyLost(LossReason),
}

/// How a caller released the lock, for its answer and its event.
pub(crate) struct ReleaseDetails<E> {
    /// The time until which the key stays taken.
    pub(crate) keep_until: Timestamp,
    /// Whether no caller waits for the answer.
    pub(crate) in_background: bool,
    /// The run of a job that ends.
    pub(crate) run: Option<JobRun>,
    /// Called with the outcome, and with whether the store confirmed that the lock was freed.
    pub(crate) then: E,
}

/// Frees a lease that no caller holds, in the background.
pub(crate) async fn release_unheld(engine: &Arc<Engine>, lease: &Arc<Lease>) {
    let ended = ReleaseDetails {
        keep_until: PAST,
        in_background: false,
        run: None,
        then: |_: &Result<ReleaseOutcome>, _: bool| {},
    };
    // Notices report a failure. A lock that is not freed ends when its lease expires.
    let _ = release_until_answered(engine, lease, Caller::Async, ended).await;
}

/// Retries a release until it is answered, or until the store has freed the key by itself.
pub(crate) async fn release_until_answered(
    engine: &Arc<Engine>,
    lease: &Arc<Lease>,
    caller: Caller,
    ended: ReleaseDetails<impl FnOnce(&Result<ReleaseOutcome>, bool)>,
) -> Result<ReleaseOutcome> {
    let mut release = Release::new(lease.claim());
    (release.in_background, release.run) = (ended.in_background, ended.run);
    let retry = ReleaseRetry {
        withdraws: false,
        release,
        keep_until: ended.keep_until,
        timeout: lease.command_timeout(),
        settled_at: PAST,
        give_up_at: lease.deadline(),
    };
    let answer = retry.run(engine, caller).await;
    let outcome = match &answer {
        // The answer *not held* to a retry does not mean a loss. The earlier try may have freed the lock without an answer.
        Ok(done) if done.freed == Freed::Released || done.repeated => Ok(ReleaseOutcome::Released),
        Ok(done) if done.sent_at >= lease.deadline() => Ok(ReleaseOutcome::AlreadyLost(LossReason::Expired)),
        Ok(_) => Ok(ReleaseOutcome::AlreadyLost(engine.loss_by_others(lease))),
        Err(error) => Err(error.clone().with_key(&lease.claim.key)),
    };
    (ended.then)(&outcome, answer.as_ref().is_ok_and(|done| done.freed == Freed::Released));
    ensure_freed(engine, lease, answer.ok().map(|done| done.sent_at));
    outcome
}

/// A release that is retried until its answer is final.
struct ReleaseRetry {
    release: Release,
    /// Whether the claim is withdrawn instead of released: as far as this process knows, no caller has held the lock by it.
    withdraws: bool,
    /// The time until which the key stays taken.
    keep_until: Timestamp,
    /// How long one try may take.
    timeout: Duration,
    /// From this time on, the store does not execute an earlier acquire of the claim. Only an answer to a release sent
    /// later is final: an acquire that runs after the release would take the lock again.
    settled_at: Timestamp,
    /// When the store has freed the key by itself.
    give_up_at: Timestamp,
}

/// The answer to a release.
struct Answered {
    freed: Freed,
    /// When the answered command was sent.
    sent_at: Timestamp,
    /// Whether an earlier try may have been executed without an answer.
    repeated: bool,
}

impl ReleaseRetry {
    async fn run(mut self, engine: &Arc<Engine>, caller: Caller) -> Result<Answered> {
        let (mut repeated, mut tries) = (false, 0);
        loop {
            let sent_at = engine.clock.now();
            self.release.keep_for = self.keep_until.since(sent_at);
            let backend = Arc::clone(&engine.backend);
            let (op, command) = if self.withdraws && self.release.keep_for.is_zero() {
                ("withdraw", backend.withdraw(self.release.claim.clone()))
            } else {
                ("release", backend.release(self.release.clone()))
            };
            let command = engine.route(caller, command);
            let bounds = (sent_at, sent_at.after(self.timeout));
            let (answer, _) = engine.timed(op, &self.release.claim.key, bounds, command, |_| None).await;
            let again_at = match answer {
                Ok(freed) if sent_at >= self.settled_at => return Ok(Answered { freed, sent_at, repeated }),
                // An acquire may still run after this release and take the lock again, so one more release must follow.
                Ok(_) => self.settled_at,
                Err(error) => {
                    repeated |= error.is_ambiguous();
                    self.release.in_background = false;
                    tries += 1;
                    let now = engine.clock.now();
                    let again_at = now.after(pause(tries, self.give_up_at.since(now)));
                    if error.kind() != LockErrorKind::Unavailable || again_at >= self.give_up_at {
                        return Err(error);
                    }
                    again_at
                }
            };
            engine.timer.sleep_until(again_at).await;
        }
    }
}

/// Returns how long to pause before a release is tried again. The bound doubles, because thousands of ended claims may wait for a store that
/// is away, on the thread that renews. It stays below half of the time that is left, so the last tries come in time.
fn pause(tries: u32, left: Duration) -> Duration {
    let longest = Duration::from_millis(500).min((left / 2).max(Duration::from_millis(100)));
    jitter(Duration::from_millis(1), Duration::from_millis(10 << tries.min(6)).min(longest))
}

/// Returns the time from which the store does not execute an unanswered acquire of a lease's claim.
pub(crate) fn settled_at(lease: &Lease) -> Timestamp {
    lease.unsettled_until.unwrap_or(PAST)
}

/// Makes sure that a late execution of an earlier send does not take or keep a lock that no caller uses.
///
/// `answered` is the time at which the answered release was sent. Without an answer, the key may outlive the lease that
/// this process knows: a renewal may have been executed although its answer was lost.
pub(crate) fn ensure_freed(engine: &Arc<Engine>, lease: &Lease, answered: Option<Timestamp>) {
    let settled_at = settled_at(lease);
    if answered.is_some_and(|sent_at| sent_at >= settled_at) {
        return;
    }
    let (worker, claim) = (Arc::clone(engine), lease.claim());
    engine.clean_up(async move {
        let _ = free(&worker, claim, PAST, settled_at).await;
    });
}

/// Frees any lock that a claim may hold, or keeps it taken until a time. Retries until an answer is certainly final: it
/// must answer a release that was sent after `settled_at`.
pub(crate) async fn free(
    engine: &Arc<Engine>,
    claim: Claim,
    keep_until: Timestamp,
    settled_at: Timestamp,
) -> Result<()> {
    let retry = ReleaseRetry {
        withdraws: true,
        keep_until,
        timeout: command_timeout(claim.ttl),
        settled_at,
        give_up_at: engine.clock.now().max(settled_at).after(claim.ttl),
        release: Release::new(claim),
    };
    retry.run(engine, Caller::Async).await.map(|_| ())
}

/// Frees a lock that was granted to a claim that has already ended.
pub(crate) async fn free_stray_grant(engine: &Arc<Engine>, claim: Claim) {
    if let Err(error) = free(engine, claim, PAST, PAST).await {
        tracing::debug!(%error, "could not release a claim that has ended; its lease ends by itself");
    }
}
