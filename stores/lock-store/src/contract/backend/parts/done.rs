//! Marks that the work under a lock is done for a version.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::Claim;
use crate::types::error::{LockError, Result};
use crate::types::key::LockKey;
use crate::types::owner::HolderInfo;

/// The longest version, in bytes.
pub const MAX_VERSION_BYTES: usize = 1024;

/// The part of a store that keeps marks. A mark says that the work under a lock is done for a version. Without this
/// part, `once_for` is refused.
///
/// An `Err` means that it is unknown whether a mark exists. Foreign data in the place of a mark is an error too: it is
/// neither *done* nor *not done*. The error names the data and its place.
///
/// The example of [`LockBackend`](crate::LockBackend) shows how a store returns a part.
pub trait DoneMarks: Send + Sync {
    /// Returns the mark of a version. `None` only if the store knows that no mark exists.
    fn done(&self, key: &LockKey, version: &JobVersion) -> impl Future<Output = Result<Option<DoneMark>>> + Send;

    /// Writes the mark of a version if the claim has the lock, in one step. Returns whether the claim had the lock.
    ///
    /// The mark is kept for this time. Without a time, it is kept as long as the store keeps such data:
    /// [`DoneMark::KEPT`] where data is not meant to last. This answers only after the mark has arrived where the
    /// claim's [durability](crate::Durability) says. Safe to repeat.
    fn mark_done(
        &self,
        claim: &Claim,
        version: &JobVersion,
        keep: Option<Duration>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Removes the mark of a version, so that the work is done again. Returns whether a mark existed.
    fn forget_done(&self, key: &LockKey, version: &JobVersion) -> impl Future<Output = Result<bool>> + Send;
}

/// A version of the work under a lock: any text of at most [`MAX_VERSION_BYTES`], compared byte by byte.
///
/// ```
/// use lock_store::JobVersion;
///
/// assert_eq!(JobVersion::new("v42")?.as_str(), "v42");
/// assert!(JobVersion::new("").is_err());
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobVersion(Arc<str>);

impl JobVersion {
    /// Checks a version.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the version is empty, is longer than
    /// [`MAX_VERSION_BYTES`], or has a zero byte, which some stores cannot keep.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(LockError::misconfigured(
                "the version is empty, so the work would be done once for ever; name what it is done for",
            ));
        }
        if text.len() > MAX_VERSION_BYTES {
            return Err(LockError::misconfigured(format!(
                "the version has {} bytes and the limit is {MAX_VERSION_BYTES}; use a shorter one or a hash of it \
                 (it starts with {:?})",
                text.len(),
                text.chars().take(40).collect::<String>(),
            )));
        }
        if text.contains('\0') {
            return Err(LockError::misconfigured(
                "the version has a zero byte, which not every store can keep; leave it out",
            ));
        }
        Ok(Self(text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A mark in the store that the work under a lock is done for a version.
///
/// See the example of `LockRequest::once_for`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DoneMark {
    /// The version.
    pub version: JobVersion,
    /// The process and call site that did the work.
    pub by: HolderInfo,
    /// How long ago it was done, by the store's clock.
    pub ago: Duration,
}

impl DoneMark {
    /// How long a mark is kept where data is not meant to last for ever: 400 days.
    pub const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

    /// Describes a mark.
    #[must_use]
    pub fn new(version: JobVersion, by: HolderInfo, ago: Duration) -> Self {
        Self { version, by, ago }
    }
}

#[cfg(test)]
mod tests {
    use super::{JobVersion, MAX_VERSION_BYTES};
    use crate::types::error::LockErrorKind;

    #[test]
    fn versions_have_limits_and_say_so() {
        assert!(JobVersion::new("x".repeat(MAX_VERSION_BYTES)).is_ok());
        for (bad, says) in [
            (String::new(), "the version is empty"),
            ("é".repeat(513), "1026 bytes and the limit is 1024"),
            ("a\0b".to_owned(), "zero byte"),
        ] {
            let error = JobVersion::new(bad).unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
