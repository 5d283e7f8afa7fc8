//! The page that explains each kind of error.

use crate::types::error::{LockError, LockErrorKind};

/// The address of a section of the page, which is in the repository.
macro_rules! section {
    ($name:literal) => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/troubleshooting.md#", $name)
    };
}

impl LockErrorKind {
    /// Returns the address of the section of *Troubleshooting* about this kind of error, for a log or a page of errors.
    ///
    /// ```
    /// use lock_core::LockErrorKind;
    ///
    /// assert!(LockErrorKind::Timeout.help_url().ends_with("/docs/troubleshooting.md#timeout"));
    /// ```
    #[must_use]
    pub const fn help_url(self) -> &'static str {
        match self {
            Self::Timeout => section!("timeout"),
            Self::Busy => section!("busy"),
            Self::Lost => section!("lost"),
            Self::Unavailable => section!("unavailable"),
            Self::WouldDeadlock => section!("woulddeadlock"),
            Self::InvalidKey => section!("invalidkey"),
            Self::Misconfigured => section!("misconfigured"),
            Self::NotInstalled => section!("notinstalled"),
            Self::ShutDown => section!("shutdown"),
        }
    }

    /// All kinds, for a test of each.
    #[cfg(any(test, feature = "test-util"))]
    #[doc(hidden)]
    pub const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Busy,
        Self::Lost,
        Self::Unavailable,
        Self::WouldDeadlock,
        Self::InvalidKey,
        Self::Misconfigured,
        Self::NotInstalled,
        Self::ShutDown,
    ];
}

impl LockError {
    /// Returns the address of the section of *Troubleshooting* about this kind of error.
    ///
    /// The message is complete without it. See [`LockErrorKind::help_url`].
    #[must_use]
    pub fn help_url(&self) -> &'static str {
        self.kind().help_url()
    }
}
