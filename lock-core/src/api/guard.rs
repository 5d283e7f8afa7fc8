//! The proof that a lock is held.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::engine::claim::free::ReleaseOutcome;
use crate::engine::context::{Frame, within};
use crate::engine::hold::owned::OwnedHold;
use crate::engine::shared::Caller;
use crate::engine::watch::watchdog;
use lock_store::types::error::{LockError, LossReason, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::options::{MAX_TTL, MIN_FIXED_TTL};
use lock_store::types::system::blocking::{block_on, yielding};
use lock_store::types::system::together::all;

/// A held lock. The watchdog renews it until it is released.
///
/// Dropping the guard releases the lock in the background. It works anywhere, without blocking and without a runtime.
/// [`release`](Self::release) waits for the confirmation.
///
/// `let _ = locks.lock(key).await?` drops the guard at once, and the lock with it. The compiler does not warn: it takes
/// `let _` for your intention. Turn on its lint `#![warn(let_underscore_drop)]`, or bind the guard to a name, for
/// example `_guard`. You can also use [`LockRequest::run`](crate::LockRequest::run), which cannot be misused that way.
///
/// ```
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let guard = locks.lock("report").await?;
/// let token = guard.token(); // goes along with every write
/// guard.ensure_held()?; // before a step that must not happen twice
/// guard.release().await?;
/// # let _ = token;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard {
    first: OwnedHold,
    /// The other keys of a request for several keys.
    more: Box<[OwnedHold]>,
}

/// Shows the parts that an error message or a log needs. A guard is often printed by a failed `unwrap_err`.
impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.keys().map(LockKey::as_str).collect();
        f.debug_struct("LockGuard")
            .field("keys", &keys)
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl LockGuard {
    pub(crate) fn new(first: OwnedHold) -> Self {
        Self { first, more: Box::default() }
    }

    /// Guards every key of a request for several keys.
    pub(crate) fn of_all(owned: Vec<OwnedHold>) -> Result<Self> {
        let mut owned = owned.into_iter();
        let first = owned.next().ok_or_else(LockError::no_keys)?;
        Ok(Self { first, more: owned.collect() })
    }

    fn owned(&self) -> impl Iterator<Item = &OwnedHold> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Unwraps the hold of one key.
    pub(crate) fn into_first(self) -> OwnedHold {
        self.first
    }

    /// Returns the only hold, or the first of several.
    pub(crate) fn first(&self) -> &OwnedHold {
        &self.first
    }

    /// Returns the context of code that runs under this guard.
    pub(crate) fn frame(&self) -> Option<Arc<Frame>> {
        Frame::around(self.first.engine().identity(), self.owned().map(|owned| Arc::clone(&owned.hold)))
    }

    /// Sets whether the key stays taken for the rest of its `min_hold` after this guard.
    pub(crate) fn set_min_hold(&self, on: bool) {
        self.owned().for_each(|owned| owned.hold.set_min_hold(on));
    }

    /// Notes how the body under this guard ended, for the records of jobs.
    pub(crate) fn set_succeeded(&self, succeeded: bool) {
        self.owned().for_each(|owned| owned.hold.set_succeeded(succeeded));
    }

    /// Returns the locked key. If there are several, the first in order.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.first.hold.events.key
    }

    /// Returns every locked key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.owned().map(|owned| &owned.hold.events.key)
    }

    /// Returns the locked stripe. If there are several, the first in order; [`keys`](Self::keys) tells the stripe of
    /// each. `None` if the lock does not belong to [`Striped`](crate::Striped).
    #[must_use]
    pub fn stripe(&self) -> Option<u32> {
        self.keys().find_map(LockKey::stripe)
    }

    /// Returns the fencing token of this grant. Send it along with every write.
    ///
    /// If there are several keys, each has its own token. This is the token of the first key, see
    /// [`token_of`](Self::token_of).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.first.hold.token
    }

    /// Returns the fencing token of one of the keys. `None` if this guard does not hold it.
    #[must_use]
    pub fn token_of(&self, key: &LockKey) -> Option<FencingToken> {
        self.owned().find(|owned| owned.hold.events.key == *key).map(|owned| owned.hold.token)
    }

    /// Returns how long you can rely on the lock without another renewal. Zero if it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.owned().map(|owned| owned.hold.remaining()).min().unwrap_or(Duration::ZERO)
    }

    /// Checks by the clock that the lock is still held. This is right even after a long pause of the process, when no
    /// background task had time to notice the loss. Sends no command.
    ///
    /// Call it before each step that must not happen twice. It narrows the window for a stale write; only a fencing
    /// token closes it.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost) with the reason.
    pub fn ensure_held(&self) -> Result<()> {
        self.owned().try_for_each(|owned| owned.hold.ensure_held())
    }

    /// Waits until the lock is lost, and returns the reason. Stays pending while the lock is held.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future changes nothing.
    pub async fn lost(&self) -> LossReason {
        if self.more.is_empty() {
            return self.first.hold.lost().await;
        }
        let mut losses: Vec<_> = self.owned().map(|owned| Box::pin(owned.hold.lost())).collect();
        poll_fn(|cx| {
            let lost = losses.iter_mut().find_map(|loss| match loss.as_mut().poll(cx) {
                Poll::Ready(reason) => Some(reason),
                Poll::Pending => None,
            });
            lost.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Runs a future in which this lock is known to be held, like the body of
    /// [`LockRequest::run`](crate::LockRequest::run).
    ///
    /// The library does not know which task has a guard in a variable. Two tasks that wait for each other's guards wait
    /// until they time out, and a nested acquire of the same key waits for itself. Inside the scope, the nested acquire
    /// fails at once with [`WouldDeadlock`](crate::LockErrorKind::WouldDeadlock). The deadlock of two tasks is found
    /// after a few seconds, and one task gives way. A timeout names the locks that this task holds.
    /// [`current_lock`](crate::current_lock), [`assert_locked`](crate::assert_locked) and
    /// [`reentrant`](crate::LockRequest::reentrant) find the lock. It is enough to wrap the part that waits:
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let cart = locks.lock("cart:7").await?;
    /// let stock = cart.scope(locks.lock("stock:42").acquire()).await?;
    /// # drop(stock);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The scope does not release the lock, and does not stop the future when the lock is lost. Check
    /// [`ensure_held`](Self::ensure_held), or use [`LockRequest::run`](crate::LockRequest::run). Spawned tasks do not
    /// inherit the scope: see [`LockContext`](crate::LockContext).
    ///
    /// # Cancel safety
    ///
    /// As safe as `future`.
    pub async fn scope<T>(&self, future: impl Future<Output = T>) -> T {
        let (frame, mut future) = (self.frame(), pin!(future));
        poll_fn(|cx| within(&frame, || future.as_mut().poll(cx))).await
    }

    /// Runs a function in which this lock is known to be held, like [`scope`](Self::scope) for a future.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let cart = locks.lock("cart:7").acquire_blocking()?;
    /// let stock = cart.enter(|| locks.lock("stock:42").acquire_blocking())?;
    /// # drop(stock);
    /// # Ok(())
    /// # }
    /// ```
    pub fn enter<R>(&self, function: impl FnOnce() -> R) -> R {
        within(&self.frame(), function)
    }

    /// Extends the lease to `by` from now. If the lease already lasts longer, it stays as it is.
    ///
    /// Use it if the watchdog is off, or before a step during which the watchdog may not run.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost) if the lock is lost.
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store did not answer; the lock then
    /// stays as it was. [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if `by` is under 50 ms or
    /// over 30 days.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the store extended the lease. The lease is never shortened.
    pub async fn extend(&self, by: Duration) -> Result<()> {
        yielding(self.try_extend(by, false).await).await
    }

    /// Extends the lease. It may have to outlive this process.
    pub(crate) async fn try_extend(&self, by: Duration, outlives: bool) -> Result<()> {
        if !(MIN_FIXED_TTL..=MAX_TTL).contains(&by) {
            return Err(LockError::misconfigured(format!(
                "extending by {by:?} is out of bounds; use between {MIN_FIXED_TTL:?} and 30 days"
            ))
            .with_key(self.key()));
        }
        self.ensure_held()?;
        for owned in self.owned() {
            watchdog::extend(owned.engine(), &owned.hold.lease, by, outlives).await?;
            owned.hold.ensure_held()?;
        }
        self.ensure_held()
    }

    /// Returns the mode: exclusive, or how the lock is shared.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.first.hold.lease.mode()
    }

    /// Turns a writer into a reader. Other readers may enter beside it, and no writer can enter in between.
    ///
    /// The fencing token stays. A reader cannot become a writer, because two readers that both want it would deadlock.
    /// Release instead, ask for the write, and check what has changed in the meantime. Does nothing for a reader.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager, Mode};
    /// # async fn demo() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.write("report").await?;
    /// guard.downgrade().await?;
    /// assert_eq!(guard.mode(), Mode::READ);
    /// assert!(locks.read("report").try_acquire().await?.is_some());
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost) if the lock is lost.
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store did not answer: the lock is then
    /// held, as a writer or as a reader. [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) for
    /// permits, and for a store that cannot share locks.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the store has let readers in. It has not let a writer in.
    pub async fn downgrade(&self) -> Result<()> {
        for owned in self.owned() {
            let turned = owned.downgrade().await.map_err(|error| error.with_key(&owned.hold.events.key));
            yielding(turned).await?;
        }
        Ok(())
    }

    /// Releases the lock and waits for the confirmation. With
    /// [`release_in_background`](crate::LockRequest::release_in_background), it does not wait.
    ///
    /// If another caller of this process waits, the lock passes to it without the store. The release is confirmed when
    /// that caller was polled and has the lock. If it is not polled within the hand-off slice (10 ms by default), the
    /// lock goes back to the store, and the store confirms.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store could not be told before the
    /// lease expired. The store then frees the lock by itself.
    ///
    /// # Cancel safety
    ///
    /// Safe: a release that has begun is finished in the background.
    pub fn release(self) -> impl Future<Output = Result<ReleaseOutcome>> + Send + 'static {
        self.release_by(Caller::Async)
    }

    /// Releases the lock and blocks this thread until the release is confirmed.
    ///
    /// # Errors
    ///
    /// Like [`release`](Self::release).
    pub fn release_blocking(self) -> Result<ReleaseOutcome> {
        if !self.first.engine().serves_blocking_callers() {
            return Err(LockError::driven_here("release().await"));
        }
        block_on(self.release_by(Caller::Blocking))
    }

    fn release_by(self, caller: Caller) -> impl Future<Output = Result<ReleaseOutcome>> + Send + 'static {
        let first = self.first.release(caller);
        // All releases are started before the first is awaited.
        let more: Vec<_> = match self.more {
            // Nearly every guard has one key. Collecting nothing costs a hundred instructions.
            none if none.is_empty() => Vec::new(),
            more => more.into_iter().map(|owned| owned.release(caller)).collect(),
        };
        async move {
            if more.is_empty() {
                return first.await;
            }
            // Polled together, so that a store can combine them.
            let mut outcome = Ok(ReleaseOutcome::Released);
            for next in all(std::iter::once(first).chain(more)).await {
                // Errors come first, then outcomes that are not known yet.
                match outcome {
                    Ok(ReleaseOutcome::Released) => outcome = next,
                    Ok(ReleaseOutcome::InBackground) if next != Ok(ReleaseOutcome::Released) => outcome = next,
                    _ => {}
                }
            }
            outcome
        }
    }
}

#[cfg(test)]
mod tests;
