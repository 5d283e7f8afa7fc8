//! One request for a lock, with its options and its name.

mod internal;

use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::guard::LockGuard;
use crate::api::manager::LockManager;
use crate::api::outcome::FromLockError;
use crate::api::protect;
use crate::engine::acquire::acquire;
use crate::engine::acquire::all::acquire_all;
use crate::engine::claim::spec::{LockSpec, OnWaiting};
use crate::engine::claim::tag::LeaseTag;
use crate::engine::context::holds_any;
use crate::engine::report::event_context::{EventContext, Origin};
#[cfg(feature = "tower")]
use crate::engine::shared::PendingEntry;
use crate::engine::shared::{Caller, Engine};
use lock_store::contract::event::{Purpose, WaitProgress};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::{LockKey, LockLabel};
use lock_store::types::mode::Mode;
use lock_store::types::naming::{RequestedKeys, typos};
use lock_store::types::options::{LockOptions, setters};
use lock_store::types::system::blocking::{block_on, yielding};
use lock_store::types::system::call_site::CallSite;
use lock_store::types::system::clock::wall_clock;

/// A lock that is not taken yet. Made by [`LockManager::lock`].
///
/// Awaiting it is the same as [`acquire`](Self::acquire).
///
/// ```
/// use std::time::Duration;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let request = locks.lock("report").with_ttl(Duration::from_secs(10)).with_wait(Duration::from_secs(1));
/// let guard = request.acquire().await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is locked until the request is awaited"]
#[derive(Clone, Debug)]
pub struct LockRequest {
    pub(super) manager: LockManager,
    pub(super) keys: Result<RequestedKeys>,
    pub(super) options: LockOptions,
    label: Option<LockLabel>,
    site: Option<&'static str>,
    called_from: &'static Location<'static>,
    /// Whether a grant that the current task already holds may be shared.
    reentrant: bool,
    mode: Result<Mode>,
    purpose: Purpose,
    /// Whether the key stays taken for its `min_hold` even if this process dies.
    kept_if_crashed: bool,
    /// Whether this belongs to work that a shutdown still serves.
    accepted: bool,
    /// Since when the key may have been kept taken, if this differs from its `min_hold`.
    kept_since: Option<SystemTime>,
    /// The text that other processes see in place of the call site.
    seen_as: Option<Arc<str>>,
    /// The function to call while the request waits.
    on_waiting: Option<OnWaiting>,
    /// The holder of the lease that is asked for, if it is one.
    lease: Option<LeaseTag>,
}

/// Work that was accepted and is not done.
#[cfg(feature = "tower")]
pub(crate) struct AcceptedWork {
    /// Dropped before the manager, whose last handle waits for everything that is pending.
    _entry: PendingEntry,
    _manager: LockManager,
}

setters!(LockRequest, options);

impl LockRequest {
    #[track_caller]
    pub(crate) fn new(manager: LockManager, keys: Result<RequestedKeys>) -> Self {
        let called_from = Location::caller();
        let options = manager.options().clone();
        Self {
            manager,
            keys,
            options,
            label: None,
            site: None,
            called_from,
            reentrant: false,
            mode: Ok(Mode::Exclusive),
            purpose: Purpose::Lock,
            kept_if_crashed: false,
            accepted: false,
            kept_since: None,
            seen_as: None,
            on_waiting: None,
            lease: None,
        }
    }

    /// Asks to share the key with other claims.
    pub(crate) fn sharing(mut self, mode: Result<Mode>) -> Self {
        self.mode = mode;
        self
    }

    /// Names the family of locks in metrics. Default: the key's template, otherwise the call site.
    pub fn with_label(mut self, label: impl Into<LockLabel>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Names the call site that other processes see as the holder. Default: the source line.
    pub fn with_site(mut self, site: &'static str) -> Self {
        self.site = Some(site);
        self
    }

    /// Shares the grant if the current task already holds the lock. Without this, such a request is refused with
    /// [`LockErrorKind::WouldDeadlock`].
    ///
    /// The guard then has the same fencing token. Its ttl and limits are those of the first grant. The lock is freed
    /// with the last of the guards. A task is only known to hold the locks of [`run`](Self::run), of the attribute and
    /// of [`LockGuard::scope`]. Beware of `join!` inside such a body: both branches are the same task, so both enter at
    /// once.
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Calls `tell` while the request waits: after a second, after ten seconds, and then each minute.
    ///
    /// The message says who holds the lock, since when, how many claims are before this one, and how much of the wait is
    /// left. Each message costs one look at the store. The look delays no grant, and if it fails, the message says so.
    /// `tell` runs in the waiting task, so it must not block. A process looks at most ten times a second, so a crowd of
    /// waiters gets fewer messages. Without the feature `inspect`, Redis does not say how many claims are before this one.
    ///
    /// Each message is also a `tracing` event (`lock.waiting`, level `INFO`), and is passed to
    /// [`LockObserver::on_waiting`](crate::LockObserver::on_waiting).
    pub fn on_waiting(mut self, tell: impl Fn(&WaitProgress) + Send + Sync + 'static) -> Self {
        self.on_waiting = Some(OnWaiting(Arc::new(tell)));
        self
    }

    /// Takes several permits of a semaphore at once, all or none. Default 1.
    ///
    /// A heavy request keeps its place at the head of the queue until enough permits are free. Lighter requests do not
    /// pass it.
    pub fn with_weight(mut self, permits: u32) -> Self {
        self.mode = self.mode.and_then(|mode| match mode {
            Mode::Shared { limit, .. } if mode != Mode::READ => Mode::permits(permits, limit),
            _ => Err(LockError::misconfigured("a weight counts permits; ask for a semaphore, or leave the weight out")),
        });
        self
    }

    /// Acquires the lock. Waits as long as the request allows.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Timeout`] if it stayed taken (`Busy` if the request does not wait).
    /// [`LockErrorKind::Unavailable`] if the store could not be asked. Also `InvalidKey`, `Misconfigured`,
    /// `WouldDeadlock`, `ShutDown`.
    ///
    /// # Cancel safety
    ///
    /// Safe: a future that is dropped at any await point leaves no key behind.
    pub async fn acquire(self) -> Result<LockGuard> {
        self.await
    }

    /// Acquires the lock if it is free now. A taken lock is not an error.
    ///
    /// If other callers wait for a lock, it counts as taken, because they came first. The store may also leave a queued
    /// lock free for 10 to 20 ms, for clients of other libraries. The lock counts as taken in that time too: otherwise
    /// this caller would take it from them out of turn (`docs/migrating.md`, *Shares*).
    ///
    /// # Errors
    ///
    /// Like [`acquire`](Self::acquire), without `Timeout` and `Busy`.
    ///
    /// # Cancel safety
    ///
    /// Safe, like [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<LockGuard>> {
        unless_busy(self.without_waiting().acquire().await)
    }

    /// Acquires the lock and blocks this thread. For synchronous code.
    ///
    /// It works inside an asynchronous runtime too, but blocks one of its threads there. A program can deadlock itself
    /// that way, for as long as the request waits.
    ///
    /// # Errors
    ///
    /// Like [`acquire`](Self::acquire).
    pub fn acquire_blocking(self) -> Result<LockGuard> {
        if !self.manager.engine().serves_blocking_callers() {
            return Err(LockError::driven_here("acquire().await"));
        }
        block_on(self.start(Caller::Blocking)?)
    }

    /// Runs `body` under the lock. If the lock is lost, drops `body` at its next await.
    ///
    /// A refused or lost lock becomes an error of `R`. A body that returns `Result<_, E>` therefore needs
    /// `E: From<LockError>`.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let token = locks.lock("nightly").run(async |guard| Ok::<_, LockError>(guard.token())).await?;
    /// # let _ = token;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// In a task of its own. Use `async move` if the body takes its values along:
    ///
    /// ```no_run
    /// # use lock_core::{LockError, LockManager};
    /// # fn demo(locks: LockManager, name: String) {
    /// tokio::spawn(async move {
    ///     let nightly = locks.lock("nightly").run(async move |guard| {
    ///         println!("{name} under token {}", guard.token());
    ///         Ok::<_, LockError>(())
    ///     });
    ///     nightly.await
    /// });
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background.
    pub async fn run<R: FromLockError>(self, body: impl AsyncFnOnce(&LockGuard) -> R) -> R {
        match self.acquire().await {
            Ok(guard) => protect::run(guard, body).await.unwrap_or_else(R::from_lock_error),
            Err(error) => R::from_lock_error(error),
        }
    }

    /// Starts the acquire. Boxed, so that it adds little to the caller's future.
    pub(crate) fn start(mut self, caller: Caller) -> Result<Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>> {
        if std::mem::take(&mut self.kept_if_crashed) {
            let keep = self.options.min_hold;
            let acquire = self.start(caller)?;
            return Ok(Box::pin(async move { protect::keep_from_start(acquire.await?, keep).await }));
        }
        let handle = Arc::clone(self.manager.handle());
        if handle.engine.made_in.was_forked() {
            return Err(LockError::forked());
        }
        let mode = self.mode.clone().map_err(|error| self.about(error))?;
        let called_from = self.called_from;
        let here = || CallSite::of_call(called_from);
        let call_site = self.site.map_or_else(here, CallSite::named);
        let origin = match self.seen_as {
            Some(what) => Arc::new(Origin { seen_as: Some(what), ..Origin::clone(self.manager.origin()) }),
            None => Arc::clone(self.manager.origin()),
        };
        let unnamed = || LockLabel::from_static(if self.site.is_some() { here() } else { call_site }.name);
        let purpose = self.purpose;
        let since = self.kept_since.map(|moment| wall_clock().duration_since(moment).unwrap_or_default());
        let kept_for = since.unwrap_or(Duration::MAX).min(self.options.min_hold);
        // A holder may need another lock to finish its work, so it is served while the manager stops.
        let accepted = self.accepted
            || purpose != Purpose::Leadership
                && (self.manager.serves_while_stopping() || holds_any(handle.engine.identity()));
        for key in self.keys.as_ref().map_or(&[][..], RequestedKeys::as_slice) {
            typos::check(key, self.manager.key_prefix(), call_site.name);
        }
        let spec = |key: LockKey| LockSpec {
            events: EventContext {
                attempt: Engine::number_attempt(),
                label: self.label.clone().or_else(|| key.label().cloned()).unwrap_or_else(unnamed),
                call_site,
                ttl: self.options.ttl.into(),
                stuck_after: self.options.stuck_threshold().into(),
                wait_limit: self.options.wait.limit().unwrap_or(Duration::MAX).into(),
                origin: Arc::clone(&origin),
                mode,
                purpose,
                key,
            },
            options: self.options.clone(),
            caller,
            reentrant: self.reentrant,
            accepted,
            kept_for,
            on_waiting: self.on_waiting.clone(),
            lease: self.lease,
        };
        let key = match self.keys? {
            RequestedKeys::One(key) => key,
            RequestedKeys::All(keys) if keys.len() > 1 && mode.is_shared() => {
                return Err(LockError::misconfigured(
                    "several keys at once are locked exclusively; share them one by one, in one order everywhere",
                ));
            }
            RequestedKeys::All(keys) if keys.len() > 1 => {
                let specs = keys.into_iter().map(spec).collect();
                let all = async move { yielding(acquire_all(handle, specs).await).await.and_then(LockGuard::of_all) };
                return Ok(Box::pin(all));
            }
            RequestedKeys::All(mut keys) => keys.pop().ok_or_else(LockError::no_keys)?,
        };
        Ok(Box::pin(acquire(handle, spec(key), LockGuard::new)))
    }
}

/// Returns nothing if the lock is taken.
pub(crate) fn unless_busy(taken: Result<LockGuard>) -> Result<Option<LockGuard>> {
    match taken {
        Err(error) if error.kind() == LockErrorKind::Busy => Ok(None),
        taken => taken.map(Some),
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<LockGuard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        self.start(Caller::Async).unwrap_or_else(|error| Box::pin(yielding(Err(error))))
    }
}
