//! Annotated functions, registered at link time, so that their metrics exist before the first call.

use std::time::Duration;

/// One function under `#[distributed_lock]`.
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

/// Every annotated function linked into this program.
#[doc(hidden)]
#[linkme::distributed_slice]
pub static SITES: [Site];

/// Returns every annotated function linked into this program, called or not.
///
/// Empty on platforms where link-time registration is unsupported.
pub fn sites() -> impl Iterator<Item = &'static Site> {
    SITES.iter()
}
