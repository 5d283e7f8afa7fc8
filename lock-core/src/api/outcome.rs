//! Turns a refused or lost lock into the return value of the protected code.

use lock_store::types::error::{LockError, Result};

/// A return type that can carry a lock failure: any `Result<_, E>` with `E: From<LockError>`.
///
/// ```
/// use lock_core::{FromLockError, LockError};
///
/// /// What a body may return under `LockRequest::run` and the attribute.
/// enum Outcome {
///     Done,
///     Refused(LockError),
/// }
///
/// impl FromLockError for Outcome {
///     fn from_lock_error(error: LockError) -> Self {
///         Self::Refused(error)
///     }
/// }
/// # let _ = (Outcome::Done, Outcome::from_lock_error);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure",
    label = "a refused lock has no value to return here",
    note = "return `Result<_, E>` where `E: From<LockError>`",
    note = "or, under `#[distributed_lock]`, set on_refused, which is on_busy, on_error and on_lost at once, to \"skip\" or a closure"
)]
pub trait FromLockError {
    /// Turns the failure into a return value.
    fn from_lock_error(error: LockError) -> Self;
}

impl<T, E: LockFailure> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::build(error))
    }
}

/// An error type that has a place for a lock failure: `From<LockError>`. The trait has its own name, so that the
/// compiler's message says what to add.
///
/// ```
/// use lock_core::{LockError, LockFailure};
///
/// #[derive(Debug, thiserror::Error)]
/// enum ChargeError {
///     #[error(transparent)]
///     Lock(#[from] LockError),
/// }
///
/// // Every such error is one.
/// fn accepts<E: LockFailure>() {}
/// accepts::<ChargeError>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be built from a `LockError`",
    label = "`{Self}: From<LockError>` is missing",
    note = "to an error of your own, add `impl From<LockError> for {Self}`, with thiserror a variant `Lock(#[from] lock_core::LockError)`",
    note = "for an error of another crate, map it under `#[distributed_lock]` with `map_err = …`, or return an enum of your own"
)]
pub trait LockFailure {
    #[doc(hidden)]
    fn build(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> LockFailure for E {
    fn build(error: LockError) -> Self {
        error.into()
    }
}

/// A return type with a value for "did not run". For `"skip"` of the attribute.
#[diagnostic::on_unimplemented(
    message = "\"skip\" has no value to return for `{Self}`",
    label = "a skipped call returns `()`, `None`, `Ok(())` or `Ok(None)`",
    note = "return one of these types; if the function is not a job, a closure can stand instead of \"skip\""
)]
pub trait Skip {
    /// Returns the value of a call that did not run.
    fn skip() -> Self;
}

impl Skip for () {
    fn skip() -> Self {}
}

impl<T> Skip for Option<T> {
    fn skip() -> Self {
        None
    }
}

impl<E> Skip for Result<(), E> {
    fn skip() -> Self {
        Ok(())
    }
}

impl<T, E> Skip for Result<Option<T>, E> {
    fn skip() -> Self {
        Ok(None)
    }
}

/// A return type whose error `map_err` can make.
#[diagnostic::on_unimplemented(
    message = "`map_err` has no error to make for `{Self}`",
    label = "this is not a `Result`",
    note = "return a `Result`, or use closures for on_busy, on_error and on_lost"
)]
pub trait Fallible {
    /// The error that the closure makes from a lock failure.
    type Error;

    /// Returns the failure.
    fn fail(error: Self::Error) -> Self;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;

    fn fail(error: E) -> Self {
        Err(error)
    }
}
