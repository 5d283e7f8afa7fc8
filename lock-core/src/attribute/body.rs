//! Code around the body: its form, its run, its end.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use crate::api::guard::LockGuard;
use crate::api::protect::{self, Drive};
use lock_store::types::error::Result;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

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

/// A guard, or an optional guard.
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

/// Runs a body until it ends or the lock is lost.
pub fn drive<H: Held, F: Future + ?Sized>(held: &H, body: Pin<Box<F>>) -> Drive<'_, F> {
    Drive::new(held.guard(), body)
}

/// Runs a body to its end, even if the lock is lost.
pub fn run_to_end<H: Held, F: Future + ?Sized>(held: &H, body: Pin<Box<F>>) -> impl Future<Output = Box<F::Output>> {
    protect::run_to_end(held.guard(), body)
}

/// Runs a synchronous body.
pub fn call<H: Held, R>(held: &H, body: impl FnOnce() -> R) -> R {
    protect::call(held.guard(), body)
}

/// Releases the lock. Returns an error if it was not held until now.
pub fn release<H: Held>(held: H) -> Boxed<Result<()>> {
    match held.into_guard() {
        Some(guard) => Box::pin(protect::release(guard)),
        None => Box::pin(std::future::ready(Ok(()))),
    }
}

/// Like [`release`], blocking.
///
/// # Errors
///
/// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost).
pub fn release_blocking<H: Held>(held: H) -> Result<()> {
    held.into_guard().map_or(Ok(()), protect::release_blocking)
}

/// A return type that shows whether the body failed. For `min_hold_on = "ok"` and `retry_failed`.
#[diagnostic::on_unimplemented(
    message = "`min_hold_on = \"ok\"` and `retry_failed` cannot see in `{Self}` whether the body failed",
    label = "this is not a `Result`",
    note = "return a `Result`, or leave them out: the key is then kept after every end"
)]
pub trait Failed {
    /// Returns whether the body failed.
    fn failed(&self) -> bool;
}

impl<T, E> Failed for std::result::Result<T, E> {
    fn failed(&self) -> bool {
        self.is_err()
    }
}

/// Frees the key as soon as the guard ends, whatever the `min_hold` is.
pub fn min_hold_off<H: Held>(held: &H) {
    if let Some(guard) = held.guard() {
        guard.set_min_hold(false);
    }
}

/// Keeps the key for its `min_hold` again if the body has succeeded.
pub fn min_hold_on<H: Held, R: Failed>(held: &H, output: Option<&R>) {
    if let (Some(guard), Some(output)) = (held.guard(), output) {
        guard.set_min_hold(!output.failed());
    }
}

/// Notes how the run of a job ended, for its metrics.
pub fn job_ended<H: Held>(held: &H, failed: Option<bool>) {
    if let (Some(guard), Some(failed)) = (held.guard(), failed) {
        guard.set_succeeded(!failed);
    }
}

/// Finds out whether an output shows that the body failed.
#[derive(Debug)]
pub struct Ended<'a, R>(pub &'a R);

impl<T, E> Ended<'_, std::result::Result<T, E>> {
    /// Answers for a `Result`. The compiler prefers this method to the one of [`NeverFails`].
    #[must_use]
    pub fn failed(&self) -> bool {
        self.0.is_err()
    }
}

/// Answers for every other type.
pub trait NeverFails {
    /// Returns false.
    fn failed(&self) -> bool {
        false
    }
}

impl<R> NeverFails for Ended<'_, R> {}

/// Finds out whether the return type of a plain function is a future.
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
    /// Answers for a future. The compiler prefers this method to the one of [`NotAFuture`].
    #[must_use]
    pub fn verdict(self) -> Asynchronous {
        Asynchronous
    }
}

/// Answers for every other type.
pub trait NotAFuture: Sized {
    /// Returns the verdict "not a future".
    fn verdict(self) -> Plain {
        Plain
    }
}

impl<T> NotAFuture for Probe<T> {}

/// The verdict "a future".
#[derive(Debug)]
pub struct Asynchronous;

/// The verdict "not a future".
#[derive(Debug)]
pub struct Plain;

/// A return type of a plain function. A future does not have it.
#[diagnostic::on_unimplemented(
    message = "this function returns a future but is not `async`: the lock would be released before the work runs",
    label = "write `async fn`, or spell the return type as `impl Future<Output = …>` or `Pin<Box<dyn Future<Output = …>>>`"
)]
pub trait Synchronous {}

impl Synchronous for Plain {}

/// Refuses [`Asynchronous`].
pub fn synchronous<V: Synchronous>(_: V) {}
