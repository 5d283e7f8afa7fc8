//! Work that is done once for a version.

use std::future::Future;
use std::pin::Pin;

use crate::api::guard::LockGuard;
use crate::api::lock::LockRequest;
use crate::api::roles::once::{OnceFor, end, end_blocking};
use lock_store::contract::backend::JobVersion;
use lock_store::types::error::Result;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A value of `once_for = …`.
#[diagnostic::on_unimplemented(
    message = "`once_for` needs a text, and this is a `{Self}`",
    label = "not the name of a version",
    note = "write a text such as once_for = \"0042\", the newest migration, or format!(\"{{number}}\")"
)]
pub trait VersionValue {
    /// Returns the text.
    fn text(&self) -> &str;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<str> + ?Sized> VersionValue for T {
    fn text(&self) -> &str {
        self.as_ref()
    }
}

/// Takes the value of `once_for = …`.
///
/// # Errors
///
/// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) for a version that is empty or too long.
pub fn version<T: VersionValue + ?Sized>(value: &T) -> Result<JobVersion> {
    JobVersion::new(value.text())
}

/// Acquires the lock, unless the work is done.
#[must_use]
pub fn enter_once(request: Result<LockRequest>, version: &Result<JobVersion>) -> Boxed<Result<Option<LockGuard>>> {
    let version = version.clone();
    Box::pin(async move { Ok(OnceFor::of(request?, version).start().await?.map(|(guard, _)| guard)) })
}

/// Like [`enter_once`], blocking.
///
/// # Errors
///
/// Like [`OnceFor::run_blocking`].
pub fn enter_once_blocking(request: Result<LockRequest>, version: &Result<JobVersion>) -> Result<Option<LockGuard>> {
    Ok(OnceFor::of(request?, version.clone()).start_blocking()?.map(|(guard, _)| guard))
}

/// Marks work that has succeeded, and releases the lock.
#[must_use]
pub fn end_once(guard: LockGuard, version: &Result<JobVersion>, succeeded: bool) -> Boxed<Result<()>> {
    let version = version.clone();
    Box::pin(async move { end(guard, &version?, None, succeeded).await })
}

/// Like [`end_once`], blocking.
///
/// # Errors
///
/// Like [`OnceFor::run_blocking`].
pub fn end_once_blocking(guard: LockGuard, version: &Result<JobVersion>, succeeded: bool) -> Result<()> {
    end_blocking(guard, version.as_ref().map_err(Clone::clone)?, None, succeeded)
}
