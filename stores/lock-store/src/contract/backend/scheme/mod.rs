//! Stores of other crates that URLs name. They are registered at link time: a program only needs
//! `use lock_postgres as _;`.

// These are the platforms that linkme supports. Elsewhere the list stays empty, and the crate still compiles.
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
    path = "scheme/no_registry.rs"
)]
mod registry;

use crate::contract::backend::AnyBackend;
use crate::types::error::Result;

pub use registry::LOCK_CORE_0_1_SCHEMES as SCHEMES;

/// A store that a URL can name.
#[doc(hidden)]
#[derive(Debug)]
pub struct Scheme {
    /// The text before the colon.
    pub names: &'static [&'static str],
    /// Makes the store of the URL.
    pub open: fn(&str) -> Result<AnyBackend>,
}

/// Makes the store of a URL whose scheme was registered. `None` if it was not registered.
#[must_use]
pub fn opened(scheme: &str, url: &str) -> Option<Result<AnyBackend>> {
    SCHEMES.iter().find(|known| known.names.contains(&scheme)).map(|known| (known.open)(url))
}
