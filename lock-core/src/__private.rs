//! What the attribute expands to. Not part of the public API: it may change in any release.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use crate::error::{LockError, LockErrorKind, Result};
use crate::event::{Notice, Observers};
use crate::guard::LockGuard;
use crate::key::{LockKey, LockLabel};
use crate::lock::LockRequest;
use crate::manager::LockManager;
use crate::naming::IntoLockKey;
use crate::protect::{self, Drive};
use crate::site::Site;

pub use crate::__register_site as register;
pub use crate::outcome::{Fallible, Skip};
pub use crate::protect::settled;
pub use crate::site::SITES;
pub use linkme;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Takes what `client = …` names: a manager, or anything that dereferences to one.
#[must_use]
pub fn client(manager: &LockManager) -> Option<&LockManager> {
    Some(manager)
}

/// Takes a duration, so that the compiler says so where it is none.
#[must_use]
pub fn duration(value: Duration) -> Duration {
    value
}

/// Puts a request together.
///
/// # Errors
///
/// [`LockErrorKind::NotInstalled`] if there is no manager.
pub fn request(
    manager: Option<&LockManager>,
    key: impl IntoLockKey,
    site: &'static Site,
    set: impl FnOnce(LockRequest) -> LockRequest,
) -> Result<LockRequest> {
    Ok(set(ask(manager, site, |manager| manager.lock(key))?))
}

/// Puts a request for several keys together.
///
/// # Errors
///
/// As [`request`].
pub fn request_all<const N: usize>(
    manager: Option<&LockManager>,
    keys: [Result<LockKey>; N],
    site: &'static Site,
    set: impl FnOnce(LockRequest) -> LockRequest,
) -> Result<LockRequest> {
    Ok(set(ask(manager, site, |manager| manager.lock_all(keys))?))
}

/// Asks the manager that is named, or else the one found here, in the name of a site.
fn ask(
    manager: Option<&LockManager>,
    site: &'static Site,
    request: impl FnOnce(&LockManager) -> LockRequest,
) -> Result<LockRequest> {
    let request = match manager {
        Some(manager) => request(manager),
        None => request(&LockManager::try_current()?),
    };
    Ok(request.with_label(LockLabel::from_static(site.label)).with_site(site.function))
}

/// Acquires.
#[must_use]
pub fn enter(request: Result<LockRequest>) -> Boxed<Result<LockGuard>> {
    match request {
        Ok(request) => request.into_future(),
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}

/// Acquires, unless there is nothing to acquire, or the store is down and the body may run anyway.
#[must_use]
pub fn enter_maybe(
    request: Option<Result<LockRequest>>,
    site: &'static Site,
    fail_open: bool,
) -> Boxed<Result<Option<LockGuard>>> {
    match request {
        None => Box::pin(std::future::ready(Ok(None))),
        Some(Ok(request)) if fail_open => Box::pin(async move {
            let observers = request.observers();
            open(request.await, site, &observers)
        }),
        Some(request) => Box::pin(async move { enter(request).await.map(Some) }),
    }
}

/// As [`enter`], blocking.
///
/// # Errors
///
/// As [`LockRequest::acquire_blocking`].
pub fn enter_blocking(request: Result<LockRequest>) -> Result<LockGuard> {
    request.and_then(LockRequest::acquire_blocking)
}

/// As [`enter_maybe`], blocking.
///
/// # Errors
///
/// As [`LockRequest::acquire_blocking`].
pub fn enter_maybe_blocking(
    request: Option<Result<LockRequest>>,
    site: &'static Site,
    fail_open: bool,
) -> Result<Option<LockGuard>> {
    match request {
        None => Ok(None),
        Some(Ok(request)) if fail_open => {
            let observers = request.observers();
            open(request.acquire_blocking(), site, &observers)
        }
        Some(request) => enter_blocking(request).map(Some),
    }
}

/// Lets the body run although the store cannot be reached, and says so. Only then: a missing manager
/// or a wrong key is a bug and never runs unlocked.
fn open(outcome: Result<LockGuard>, site: &'static Site, observers: &Observers) -> Result<Option<LockGuard>> {
    match outcome {
        Err(error) if error.kind() == LockErrorKind::Unavailable => {
            tracing::warn!(lock = site.label, function = site.function, %error, "running without the lock");
            observers.notice(&Notice::UnlockedRun { label: &LockLabel::from_static(site.label) });
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}

/// Whether a refusal means that somebody else has the lock.
#[must_use]
pub fn is_busy(error: &LockError) -> bool {
    matches!(error.kind(), LockErrorKind::Timeout | LockErrorKind::Busy)
}

/// Notes a failure that the return value will not carry.
pub fn skipped(error: &LockError) {
    tracing::warn!(%error, "skipped a call because its lock could not be taken");
}

/// Lets the user's function make the return value.
pub fn handle<R>(error: LockError, handler: impl FnOnce(LockError) -> R) -> R {
    handler(error)
}

/// Lets the user's function make the error of the return value.
pub fn mapped<R: Fallible>(error: LockError, map: impl FnOnce(LockError) -> R::Error) -> R {
    R::fail(map(error))
}

/// Stands for a value of any type in code that never runs.
#[must_use]
pub fn never<R>() -> R {
    unreachable!("only the type is used")
}

/// Boxes a body.
#[must_use]
pub fn boxed<F: Future>(body: F) -> Pin<Box<F>> {
    Box::pin(body)
}

/// Starts the future that a plain function returns.
pub fn future_of<T, F: Future<Output = T>>(function: impl FnOnce() -> F) -> F {
    function()
}

/// A guard, or maybe one.
pub trait Held: Sized {
    /// Returns the guard.
    fn guard(&self) -> Option<&LockGuard>;
    /// Takes the guard.
    fn into_guard(self) -> Option<LockGuard>;
}

impl Held for LockGuard {
    fn guard(&self) -> Option<&LockGuard> {
        Some(self)
    }

    fn into_guard(self) -> Option<LockGuard> {
        Some(self)
    }
}

impl Held for Option<LockGuard> {
    fn guard(&self) -> Option<&LockGuard> {
        self.as_ref()
    }

    fn into_guard(self) -> Option<LockGuard> {
        self
    }
}

/// Runs a body until it ends or the lock is lost, whichever is first.
pub fn drive<H: Held, F: Future + ?Sized>(held: &H, body: Pin<Box<F>>) -> Drive<'_, F> {
    Drive::new(held.guard(), body)
}

/// Runs a body to its end, lost or not.
pub fn run_to_end<H: Held, F: Future + ?Sized>(held: &H, body: Pin<Box<F>>) -> impl Future<Output = Box<F::Output>> {
    protect::run_to_end(held.guard(), body)
}

/// Runs a synchronous body.
pub fn call<H: Held, R>(held: &H, body: impl FnOnce() -> R) -> R {
    protect::call(held.guard(), body)
}

/// Releases, and says whether the lock was held until now.
pub fn release<H: Held>(held: H) -> Boxed<Result<()>> {
    match held.into_guard() {
        Some(guard) => Box::pin(protect::release(guard)),
        None => Box::pin(std::future::ready(Ok(()))),
    }
}

/// As [`release`], blocking.
///
/// # Errors
///
/// [`LockErrorKind::Lost`].
pub fn release_blocking<H: Held>(held: H) -> Result<()> {
    held.into_guard().map_or(Ok(()), protect::release_blocking)
}

/// Finds out whether the return type of a plain function is a future in disguise.
#[derive(Debug)]
pub struct Probe<T>(PhantomData<T>);

impl<T> Probe<T> {
    /// Asks about `T`.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "named by the attribute only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Future> Probe<T> {
    /// Answers, before [`NotAFuture`] can.
    #[must_use]
    pub fn verdict(self) -> Asynchronous {
        Asynchronous
    }
}

/// Answers for everything else.
pub trait NotAFuture: Sized {
    /// Answers.
    fn verdict(self) -> Plain {
        Plain
    }
}

impl<T> NotAFuture for Probe<T> {}

/// The verdict "a future".
#[derive(Debug)]
pub struct Asynchronous;

/// The verdict "no future".
#[derive(Debug)]
pub struct Plain;

/// What the return type of a plain function must not be.
#[diagnostic::on_unimplemented(
    message = "this function returns a future but is not `async`: the lock would be released before the work runs",
    label = "write `async fn`, or spell the return type as `impl Future<Output = …>` or `Pin<Box<dyn Future<Output = …>>>`"
)]
pub trait Synchronous {}

impl Synchronous for Plain {}

/// Refuses [`Asynchronous`].
pub fn synchronous<V: Synchronous>(_: V) {}
