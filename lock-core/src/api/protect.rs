//! Runs a body under a lock, stops it when the lock is lost, and releases the lock when it ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::engine::claim::free::ReleaseOutcome;
use crate::engine::context::{Frame, Scoped, within};
use lock_store::types::error::{LockError, LossReason, Result};

/// Returns the context in which a body runs under this guard.
fn frame(guard: Option<&LockGuard>) -> Option<Arc<Frame>> {
    guard.and_then(LockGuard::frame)
}

/// Runs a body until it ends or the lock is lost.
///
/// Its output is boxed, because it is kept while the lock is released. A large output then does not make the caller's
/// future large.
pub struct Drive<'a, F: Future + ?Sized> {
    guard: Option<&'a LockGuard>,
    /// Wakes the task when the lock is lost.
    lost: Option<Pin<Box<dyn Future<Output = LossReason> + Send + 'a>>>,
    body: Scoped<F>,
}

impl<'a, F: Future + ?Sized> Drive<'a, F> {
    pub(crate) fn new(guard: Option<&'a LockGuard>, body: Pin<Box<F>>) -> Self {
        let lost = guard.map(|guard| Box::pin(guard.lost()) as Pin<Box<dyn Future<Output = LossReason> + Send + 'a>>);
        Self { guard, lost, body: Scoped::new(frame(guard), body) }
    }
}

impl<F: Future + ?Sized> Future for Drive<'_, F> {
    type Output = Result<Box<F::Output>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let (Some(guard), Some(lost)) = (this.guard, &mut this.lost) {
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                this.body.stop();
                return Poll::Ready(Err(LockError::lost(reason).with_key(guard.key())));
            }
            // After a pause of the whole process, only the clock shows the loss. The signal has not been sent yet.
            if let Err(error) = guard.ensure_held() {
                this.body.stop();
                return Poll::Ready(Err(error));
            }
        }
        Pin::new(&mut this.body).poll(cx).map(|output| Ok(Box::new(output)))
    }
}

impl<F: Future + ?Sized> fmt::Debug for Drive<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Runs a body under a guard until it ends or the lock is lost, and releases the lock.
pub(crate) async fn run<R>(guard: LockGuard, body: impl AsyncFnOnce(&LockGuard) -> R) -> Result<R> {
    let output = Drive::new(Some(&guard), Box::pin(body(&guard))).await;
    join_outcome(output, release(guard).await)
}

/// Extends the lease to the whole time for which the key is to be kept, before the body runs.
pub(crate) async fn keep_from_start(guard: LockGuard, keep: Duration) -> Result<LockGuard> {
    match guard.try_extend(keep, true).await {
        Ok(()) => Ok(guard),
        Err(error) => {
            // The body did not run, so this run does not count.
            guard.set_min_hold(false);
            Err(error)
        }
    }
}

/// Joins the outcomes of the body and of the lock. The body counts only if the lock was held until its end.
pub fn join_outcome<T>(output: Result<Box<T>>, left: Result<()>) -> Result<T> {
    output.and_then(|output| left.map(|()| *output))
}

/// Runs a body to its end, even if the lock is lost. Its output is boxed like that of [`Drive`].
pub(crate) async fn run_to_end<F: Future + ?Sized>(guard: Option<&LockGuard>, body: Pin<Box<F>>) -> Box<F::Output> {
    Box::new(Scoped::new(frame(guard), body).await)
}

/// Runs a synchronous body.
pub(crate) fn call<R>(guard: Option<&LockGuard>, body: impl FnOnce() -> R) -> R {
    match guard {
        Some(_) => within(&frame(guard), body),
        None => body(),
    }
}

/// Releases the lock. Returns an error if it was not held until now.
pub(crate) async fn release(guard: LockGuard) -> Result<()> {
    let (key, until_now) = (guard.key().clone(), guard.ensure_held());
    ended(&guard.release().await, until_now).map_err(|error| error.with_key(&key))
}

/// Like [`release`], blocking.
pub(crate) fn release_blocking(guard: LockGuard) -> Result<()> {
    let (key, until_now) = (guard.key().clone(), guard.ensure_held());
    ended(&guard.release_blocking(), until_now).map_err(|error| error.with_key(&key))
}

fn ended(released: &Result<ReleaseOutcome>, until_now: Result<()>) -> Result<()> {
    match released {
        Ok(ReleaseOutcome::AlreadyLost(reason)) => until_now.and(Err(LockError::lost(*reason))),
        // An event reports a failed release. The store frees the lock when its lease ends.
        Ok(ReleaseOutcome::Released | ReleaseOutcome::InBackground) | Err(_) => until_now,
    }
}
