//! Annotated functions, registered at link time, so that their metrics exist before the first call.

// Where linkme knows the linker. Elsewhere nothing is collected, instead of nothing being compiled.
#[cfg_attr(
    not(any(
        target_os = "android",
        target_os = "freebsd",
        target_os = "fuchsia",
        target_os = "illumos",
        target_os = "ios",
        target_os = "linux",
        target_os = "macos",
        target_os = "none",
        target_os = "openbsd",
        target_os = "psp",
        target_os = "tvos",
        target_os = "uefi",
        target_os = "windows",
    )),
    path = "site/no_registry.rs"
)]
mod registry;

use std::time::Duration;

#[doc(hidden)]
pub use registry::SITES;

/// One function under `#[distributed_lock]`.
///
/// ```
/// for site in lock_core::sites() {
///     println!("{} locks {}", site.function, site.label);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Site {
    /// The metric label of its lock.
    pub label: &'static str,
    /// The function, as `module::path::name`.
    pub function: &'static str,
    /// The lease, if the attribute spells it.
    pub ttl: Option<Duration>,
    /// The age at which a hold counts as stuck, if the attribute spells it.
    pub stuck_after: Option<Duration>,
}

impl Site {
    /// Describes an annotated function.
    #[must_use]
    pub const fn new(
        label: &'static str,
        function: &'static str,
        ttl: Option<Duration>,
        stuck_after: Option<Duration>,
    ) -> Self {
        Self { label, function, ttl, stuck_after }
    }
}

/// Returns every annotated function linked into this program, called or not.
///
/// Empty where the linker does not collect them: on NetBSD, say. There the series of a lock exist from
/// its first call on, and everything else is the same.
pub fn sites() -> impl Iterator<Item = &'static Site> {
    SITES.iter()
}
