//! Tracks which locks the current task holds.
//!
//! A thread-local is swapped in around every poll of a protected body. It therefore follows the task across threads and
//! executors. It knows the locks of [`LockRequest::run`](crate::LockRequest::run), of the attribute and of
//! [`LockGuard::scope`](crate::LockGuard::scope). It does not know a guard that is only held in a variable.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::engine::hold::Hold;
use lock_store::types::error::Result;
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::naming::IntoLockKey;

thread_local! {
    static CURRENT: Cell<Option<Arc<Frame>>> = const { Cell::new(None) };
}

/// One lock that is held around the running code, with the locks around it.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The identity of the engine that granted it.
    engine: usize,
    hold: Arc<Hold>,
    outer: Option<Arc<Frame>>,
}

impl Frame {
    /// Puts locks inside those that the current task already holds.
    pub(crate) fn around(engine: usize, holds: impl Iterator<Item = Arc<Hold>>) -> Option<Arc<Self>> {
        holds.fold(current(), |outer, hold| Some(Arc::new(Self { engine, hold, outer })))
    }
}

/// Returns the hold of the current task on a key, if it still has one.
pub(crate) fn holds(engine: usize, key: &LockKey) -> Option<Arc<Hold>> {
    find(|frame| frame.engine == engine && frame.hold.events.key == *key)
}

/// Returns whether the current task holds a lock of this engine.
pub(crate) fn holds_any(engine: usize) -> bool {
    find(|frame| frame.engine == engine).is_some()
}

/// Shows every lock that the current task holds, the innermost first.
pub(crate) fn each_held(engine: usize, mut show: impl FnMut(&Arc<Hold>)) {
    find(|frame| {
        if frame.engine == engine && frame.hold.ensure_held().is_ok() {
            show(&frame.hold);
        }
        false
    });
}

fn find(mut wanted: impl FnMut(&Frame) -> bool) -> Option<Arc<Hold>> {
    let innermost = current();
    let mut next = innermost.as_ref();
    while let Some(frame) = next {
        // A context that was carried along may be older than the release of its lock.
        if wanted(frame) && frame.hold.ensure_held().is_ok() {
            return Some(Arc::clone(&frame.hold));
        }
        next = frame.outer.as_ref();
    }
    None
}

/// A place in the running code, identified by the innermost lock around it.
#[derive(Clone, Debug)]
pub(crate) struct CodePlace(Arc<Frame>);

impl PartialEq for CodePlace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Returns the place of the running code, if a lock is held around it.
pub(crate) fn place() -> Option<CodePlace> {
    current().map(CodePlace)
}

fn current() -> Option<Arc<Frame>> {
    CURRENT
        .try_with(|current| {
            let frame = current.take();
            current.set(frame.clone());
            frame
        })
        .ok()
        .flatten()
}

/// Runs a function inside a context and the span of its lock. Restores the previous context even if the function
/// panics.
pub(crate) fn within<R>(frame: &Option<Arc<Frame>>, function: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<Frame>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = CURRENT.try_with(|current| current.set(self.0.take()));
        }
    }
    let before = CURRENT.try_with(|current| current.replace(frame.clone())).ok().flatten();
    let _restore = Restore(before);
    let _span = frame.as_ref().map(|frame| frame.hold.span().enter());
    function()
}

/// A boxed body that runs, and is dropped, inside a context.
pub(crate) struct Scoped<F: Future + ?Sized> {
    frame: Option<Arc<Frame>>,
    /// `None` once the body has ended or was dropped.
    body: Option<Pin<Box<F>>>,
}

impl<F: Future + ?Sized> Scoped<F> {
    pub(crate) fn new(frame: Option<Arc<Frame>>, body: Pin<Box<F>>) -> Self {
        Self { frame, body: Some(body) }
    }

    /// Drops the body now.
    pub(crate) fn stop(&mut self) {
        if let Some(body) = self.body.take() {
            within(&self.frame, || drop(body));
        }
    }
}

impl<F: Future + ?Sized> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Pending };
        let output = ready!(within(&this.frame, || body.as_mut().poll(cx)));
        // Stop before the lock is released, so that values owned by the body are dropped under the lock.
        this.stop();
        Poll::Ready(output)
    }
}

impl<F: Future + ?Sized> Drop for Scoped<F> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The locks that a task holds, to be carried into code that does not inherit them, for example a spawned task or a
/// `spawn_blocking` closure.
///
/// ```
/// # use lock_core::{LockContext, LockError, LockManager, assert_locked};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// locks.lock("nightly").run(async |_| {
///     let context = LockContext::current();
///     std::thread::spawn(move || context.enter(|| assert_locked("nightly"))).join().ok();
///     Ok(())
/// }).await
/// # }
/// ```
///
/// A context does not keep a lock held: a lock that has ended is no longer in it.
#[derive(Clone, Default)]
pub struct LockContext {
    frame: Option<Arc<Frame>>,
}

impl LockContext {
    /// Returns the context of the running code.
    #[must_use]
    pub fn current() -> Self {
        Self { frame: current() }
    }

    /// Runs a future in this context.
    ///
    /// # Cancel safety
    ///
    /// As safe as `future`.
    pub async fn scope<T>(self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|cx| within(&self.frame, || future.as_mut().poll(cx))).await
    }

    /// Runs a function in this context.
    pub fn enter<R>(&self, function: impl FnOnce() -> R) -> R {
        within(&self.frame, function)
    }
}

impl fmt::Debug for LockContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = std::iter::successors(self.frame.as_ref(), |frame| frame.outer.as_ref());
        f.debug_list().entries(frames.map(|frame| &frame.hold.events.key)).finish()
    }
}

/// A lock that the running code holds. See [`current_lock`].
///
/// ```
/// use lock_core::current_lock;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let token = locks.lock("report").run(async |_| Ok::<_, LockError>(current_lock().map(|lock| lock.token()))).await?;
/// assert!(token.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CurrentLock {
    hold: Arc<Hold>,
}

impl CurrentLock {
    /// Returns the key that is locked.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.hold.events.key
    }

    /// Returns the fencing token of the grant. Send it along with every write.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token
    }

    /// Returns how long you can rely on the lock without another renewal. Zero if the lock is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Checks that the lock is still held, like [`LockGuard::ensure_held`](crate::LockGuard::ensure_held).
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost) with the reason.
    pub fn ensure_held(&self) -> Result<()> {
        self.hold.ensure_held()
    }
}

/// Returns the innermost lock that the running code holds through the attribute,
/// [`LockRequest::run`](crate::LockRequest::run) or [`LockGuard::scope`](crate::LockGuard::scope). Code deep inside the
/// body can read the token from it.
///
/// Spawned tasks and threads do not inherit it: see [`LockContext`].
#[must_use]
pub fn current_lock() -> Option<CurrentLock> {
    find(|_| true).map(|hold| CurrentLock { hold })
}

/// Checks that the running code holds a lock through the attribute, [`LockRequest::run`](crate::LockRequest::run) or
/// [`LockGuard::scope`](crate::LockGuard::scope).
///
/// # Panics
///
/// Panics if it does not: the caller forgot to lock, or runs in a task that did not inherit the context.
#[track_caller]
pub fn assert_locked(key: impl IntoLockKey) {
    let held = match key.into_lock_key() {
        Ok(key) => find(|frame| frame.hold.events.key == key).ok_or(key.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(key) = held {
        panic!(
            "the lock {key:?} is not held here; take it with #[distributed_lock] or LockRequest::run around this code, or \
             let the guard that holds it know: LockGuard::scope"
        );
    }
}

pub(crate) mod deadlock;
#[cfg(test)]
mod tests;
