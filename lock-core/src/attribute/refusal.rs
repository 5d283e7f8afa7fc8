//! The return value of a call that got no lock, in place of the body's.

use crate::api::outcome::{Fallible, FromLockError};
use crate::attribute::site::Site;
use lock_store::types::error::{LockError, LockErrorKind};

/// Returns whether a refusal means that another caller has the lock.
#[must_use]
pub fn is_busy(error: &LockError) -> bool {
    matches!(error.kind(), LockErrorKind::Timeout | LockErrorKind::Busy)
}

/// Returns whether a refusal means that the program is wrong. No value may hide that.
#[must_use]
pub fn is_mistake(error: &LockError) -> bool {
    matches!(error.kind(), LockErrorKind::NotInstalled | LockErrorKind::InvalidKey | LockErrorKind::Misconfigured)
}

/// Logs a failure that the return value does not carry.
pub fn skipped(error: &LockError) {
    tracing::warn!(%error, "skipped a call because its lock could not be taken");
}

/// Lets the user's closure make the return value.
pub fn handle<R>(error: LockError, handler: impl FnOnce(LockError) -> R) -> R {
    handler(error)
}

/// Returns the user's value instead of an error.
pub fn value<R>(_: LockError, value: impl FnOnce() -> R) -> R {
    value()
}

/// Lets the user's function make the error of the return value.
pub fn mapped<R: Fallible>(error: LockError, map: impl FnOnce(LockError) -> R::Error) -> R {
    R::fail(map(error))
}

/// A path that answers a refusal: a function of the error, or a value of the return type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` answers no refusal of a function that returns `{R}`",
    label = "neither a `{R}` nor a function from `LockError` to it"
)]
pub trait Answer<R, By> {
    /// Whether it gets the error.
    const TOLD: bool;

    /// Returns the value of the refused call.
    fn answer(self, error: LockError) -> R;
}

/// It is a function.
#[derive(Debug)]
pub struct ByCall;

/// It is a value.
#[derive(Debug)]
pub struct ByValue;

impl<R, F: FnOnce(LockError) -> R> Answer<R, ByCall> for F {
    const TOLD: bool = true;

    fn answer(self, error: LockError) -> R {
        self(error)
    }
}

impl<R> Answer<R, ByValue> for R {
    const TOLD: bool = false;

    fn answer(self, _: LockError) -> R {
        self
    }
}

/// Answers a refusal.
pub fn answer<R, A: Answer<R, By>, By>(error: LockError, answer: A) -> R {
    answer.answer(error)
}

/// Answers a refusal, unless it is a mistake that the answer would hide.
///
/// # Errors
///
/// The mistake.
pub fn answer_unless_mistaken<R, A: Answer<R, By>, By>(error: LockError, answer: A) -> Result<R, LockError> {
    if A::TOLD {
        return Ok(answer.answer(error));
    }
    if is_mistake(&error) {
        return Err(error);
    }
    skipped(&error);
    Ok(answer.answer(error))
}

/// A mistake in the program that must become a return value.
#[derive(Debug)]
pub struct Mistake<R> {
    error: LockError,
    site: &'static Site,
    returned: std::marker::PhantomData<fn() -> R>,
}

impl<R> Mistake<R> {
    /// Takes the error of a call.
    #[must_use]
    pub fn new(error: LockError, site: &'static Site) -> Self {
        Self { error, site, returned: std::marker::PhantomData }
    }
}

impl<R: FromLockError> Mistake<R> {
    /// Returns the error. The compiler prefers this method to the one of [`CannotCarry`], which panics.
    #[must_use]
    pub fn refuse(self) -> R {
        R::from_lock_error(self.error)
    }
}

/// Handles a mistake in every other return type.
pub trait CannotCarry<R>: Sized {
    /// Panics.
    fn refuse(self) -> R;
}

impl<R> CannotCarry<R> for Mistake<R> {
    #[track_caller]
    fn refuse(self) -> R {
        mistake(&self.error, self.site)
    }
}

/// Ends a call that cannot return its mistake. Skipping the body silently would be worse.
///
/// # Panics
///
/// Always panics.
#[track_caller]
pub fn mistake(error: &LockError, site: &Site) -> ! {
    panic!(
        "{} did not run, and its return type cannot say so: {error}. This is a mistake in the program, which \"skip\" and plain \
         values do not hide; return a `Result` whose error is `From<LockError>`, or set map_err or a closure, to handle it",
        site.function(),
    )
}
