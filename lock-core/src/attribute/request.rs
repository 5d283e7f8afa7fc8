//! Code before the body: the request with its options, and its grant.

use std::fmt::{self, Display};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use crate::api::guard::LockGuard;
use crate::api::lock::LockRequest;
use crate::api::manager::LockManager;
use crate::api::overriding;
use crate::attribute::site::Site;
use crate::engine::report::event_context::Origin;
use lock_store::contract::event::Notice;
use lock_store::types::error::{LockErrorKind, Result};
use lock_store::types::key::{LockKey, LockLabel};
use lock_store::types::mode::Mode;
use lock_store::types::naming::IntoLockKey;
use lock_store::types::options::{Durability, Wait};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Takes the value of `client = …`: a manager, or any type that dereferences to one.
#[must_use]
pub fn client(manager: &LockManager) -> Option<&LockManager> {
    Some(manager)
}

/// A value of `wait = …`, besides its keywords.
#[diagnostic::on_unimplemented(
    message = "`wait` needs a `Duration` or a `Wait`, and this is a `{Self}`",
    label = "not a time to wait",
    note = "write wait = \"5s\", wait = \"none\", wait = \"forever\", or an expression of type `Duration` or `Wait`"
)]
pub trait WaitValue {
    /// Returns how long to wait.
    fn into_wait(self) -> Wait;
}

impl WaitValue for Duration {
    fn into_wait(self) -> Wait {
        self.into()
    }
}

impl WaitValue for Wait {
    fn into_wait(self) -> Wait {
        self
    }
}

/// Takes the value of `wait = …`.
pub fn wait(value: impl WaitValue) -> Wait {
    value.into_wait()
}

/// A value of `permits = …` and `weight = …`.
#[diagnostic::on_unimplemented(
    message = "`permits` and `weight` need a `u32`, and this is a `{Self}`",
    label = "not a number of permits",
    note = "write a number, such as permits = 16, or an expression of type `u32`"
)]
pub trait Permits {
    /// Returns the number.
    fn count(self) -> u32;
}

impl Permits for u32 {
    fn count(self) -> u32 {
        self
    }
}

/// Takes the value of `permits = …` and `weight = …`.
pub fn permits(value: impl Permits) -> u32 {
    value.count()
}

/// For `mode = "read"`.
pub fn read(request: LockRequest) -> LockRequest {
    request.sharing(Ok(Mode::READ))
}

/// For `permits = …`.
pub fn semaphore(request: LockRequest, permits: u32) -> LockRequest {
    request.sharing(Mode::permits(1, permits))
}

/// A value of `durability = …`, besides its keywords.
#[diagnostic::on_unimplemented(
    message = "`durability` needs a `Durability`, and this is a `{Self}`",
    label = "not where a lock must have arrived",
    note = "write durability = \"acks=1\", \"acks=all\", \"fsync=local\", \"fsync=1\", \"master\", or an expression of type `Durability`"
)]
pub trait DurabilityValue {
    /// Returns the durability.
    fn durability(self) -> Durability;
}

impl DurabilityValue for Durability {
    fn durability(self) -> Durability {
        self
    }
}

/// Takes the value of `durability = …`.
pub fn durability(value: impl DurabilityValue) -> Durability {
    value.durability()
}

/// A value between the angle brackets of a key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no text that could be part of a key",
    label = "this value does not implement `Display`",
    note = "write its `Debug` text with `<value:?>`, or a field or method that has a text",
    note = "an `Option`: settle before the call what `None` locks; a list: `keys = …` locks one key for each entry"
)]
pub trait KeyValue: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyValue for T {}

/// Takes a value of a key. The compiler therefore reports a value without a text only once.
pub fn shown<T: KeyValue + ?Sized>(value: &T) -> Shown<'_, T> {
    Shown { value, show: T::fmt }
}

/// A value of a key. It has a text for every `T`, because only [`shown`] makes it.
pub struct Shown<'a, T: ?Sized> {
    value: &'a T,
    show: fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
}

impl<T: ?Sized> Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.show)(self.value, f)
    }
}

impl<T: ?Sized> fmt::Debug for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.show)(self.value, f)
    }
}

/// A value of `keys = …`, besides a list of templates.
#[diagnostic::on_unimplemented(
    message = "`keys` needs a list of templates or an iterator of keys, and this is a `{Self}`",
    label = "not an iterator of keys",
    note = "write keys = [\"account:<from>\", \"account:<to>\"], or an iterator of strings or of what `lock_key!` gives"
)]
pub trait Keys: IntoIterator<Item: IntoLockKey> {}

#[diagnostic::do_not_recommend]
impl<T: IntoIterator<Item: IntoLockKey>> Keys for T {}

/// Takes the value of `keys = …`. Returns a list, so that the compiler reports a wrong type only once.
pub fn keys(keys: impl Keys) -> Vec<Result<LockKey>> {
    keys.into_iter().map(IntoLockKey::into_lock_key).collect()
}

/// Makes a request.
///
/// # Errors
///
/// [`LockErrorKind::NotInstalled`] if no manager is found.
pub fn request(
    manager: Option<&LockManager>,
    key: impl IntoLockKey,
    site: &'static Site,
    set: impl FnOnce(LockRequest) -> LockRequest,
) -> Result<LockRequest> {
    Ok(overriding::apply(set(ask(manager, site, |manager| manager.lock(key))?)))
}

/// Makes a request for several keys.
///
/// # Errors
///
/// Like [`request`].
pub fn request_all<K: IntoLockKey>(
    manager: Option<&LockManager>,
    keys: impl IntoIterator<Item = K>,
    site: &'static Site,
    set: impl FnOnce(LockRequest) -> LockRequest,
) -> Result<LockRequest> {
    Ok(overriding::apply(set(ask(manager, site, |manager| manager.lock_all(keys))?)))
}

/// Makes a request for one of several stripes. The id is the part of the key from `id_at` on.
///
/// # Errors
///
/// Like [`request`].
pub fn request_striped(
    manager: Option<&LockManager>,
    (name, id_at, count): (&'static str, usize, u32),
    key: Result<LockKey>,
    site: &'static Site,
    set: impl FnOnce(LockRequest) -> LockRequest,
) -> Result<LockRequest> {
    let stripe = |manager: &LockManager| match key {
        Ok(key) => manager.striped(name, count).lock(&key.as_str()[id_at..]),
        Err(error) => manager.lock(Err(error)),
    };
    Ok(overriding::apply(set(ask(manager, site, stripe)?)))
}

/// Makes it the request of a job that runs at most once in a period.
pub fn at_most_every(request: LockRequest, period: Duration) -> LockRequest {
    request.for_job_every(period, period)
}

/// Makes it the request of a job that runs once for each tick of a schedule with this period.
pub fn once_every(request: LockRequest, period: Duration) -> LockRequest {
    request.for_job_each(period)
}

/// Makes it the request of a job that runs once for its scheduled time.
pub fn once_at(request: LockRequest, time: impl Into<SystemTime>) -> LockRequest {
    request.for_job_at(time.into())
}

/// Makes it the request of work that is done once for a version.
pub fn once_for(request: LockRequest) -> LockRequest {
    request.for_a_job(None)
}

/// Also counts a run whose process died.
pub fn even_if_crashed(request: LockRequest) -> LockRequest {
    request.kept_if_crashed()
}

/// Asks the named manager, or else the one that is found here, in the name of a site.
fn ask(
    manager: Option<&LockManager>,
    site: &'static Site,
    request: impl FnOnce(&LockManager) -> LockRequest,
) -> Result<LockRequest> {
    let request = match manager {
        Some(manager) => request(manager),
        None => request(&LockManager::try_current()?),
    };
    Ok(request.with_label(LockLabel::from_static(site.label)).with_site(site.function()))
}

/// Acquires the lock.
#[must_use]
pub fn enter(request: Result<LockRequest>) -> Boxed<Result<LockGuard>> {
    match request {
        Ok(request) => request.into_future(),
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}

/// Acquires the lock. Returns `None` without a request, or if the store cannot be reached and the body may run anyway.
#[must_use]
pub fn enter_maybe(
    request: Option<Result<LockRequest>>,
    site: &'static Site,
    fail_open: bool,
) -> Boxed<Result<Option<LockGuard>>> {
    match request {
        None => Box::pin(std::future::ready(Ok(None))),
        Some(Ok(request)) if fail_open => Box::pin(async move {
            let origin = request.origin();
            open(request.await, site, &origin)
        }),
        Some(request) => Box::pin(async move { enter(request).await.map(Some) }),
    }
}

/// Like [`enter`], blocking.
///
/// # Errors
///
/// Like [`LockRequest::acquire_blocking`].
pub fn enter_blocking(request: Result<LockRequest>) -> Result<LockGuard> {
    request.and_then(LockRequest::acquire_blocking)
}

/// Like [`enter_maybe`], blocking.
///
/// # Errors
///
/// Like [`LockRequest::acquire_blocking`].
pub fn enter_maybe_blocking(
    request: Option<Result<LockRequest>>,
    site: &'static Site,
    fail_open: bool,
) -> Result<Option<LockGuard>> {
    match request {
        None => Ok(None),
        Some(Ok(request)) if fail_open => {
            let origin = request.origin();
            open(request.acquire_blocking(), site, &origin)
        }
        Some(request) => enter_blocking(request).map(Some),
    }
}

/// Lets the body run although the store cannot be reached, and logs that. Only in this case: a missing manager or a
/// wrong key is a bug and never runs unlocked.
fn open(outcome: Result<LockGuard>, site: &'static Site, origin: &Origin) -> Result<Option<LockGuard>> {
    match outcome {
        Err(error) if error.kind() == LockErrorKind::Unavailable => {
            tracing::warn!(lock = site.label, function = site.function(), %error, "running without the lock");
            let (label, store) = (LockLabel::from_static(site.label), &*origin.store);
            origin.observers.notice(&Notice::UnlockedRun { label: &label, store });
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}
