//! Annotated functions, registered at link time, so that their metrics exist before the first call.

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
    path = "site/no_registry.rs"
)]
mod registry;

use std::time::Duration;

#[doc(hidden)]
pub use registry::LOCK_CORE_0_1_SITES as SITES;

/// One function under `#[distributed_lock]`: an annotated site.
///
/// ```
/// for site in lock_core::sites() {
///     println!("{} locks {}", site.function(), site.label);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Site {
    /// The metric label of its lock.
    pub label: &'static str,
    /// Returns the name of the function. It is a call, because no constant knows the type that a method belongs to.
    function: fn() -> &'static str,
    /// The lease, if the attribute sets it.
    pub ttl: Option<Duration>,
    /// The age at which a hold counts as stuck, if the attribute sets it.
    pub stuck_after: Option<Duration>,
}

impl Site {
    /// Describes an annotated function.
    #[must_use]
    pub const fn new(
        label: &'static str,
        function: fn() -> &'static str,
        ttl: Option<Duration>,
        stuck_after: Option<Duration>,
    ) -> Self {
        Self { label, function, ttl, stuck_after }
    }

    /// Returns the function, with the type of a method: `billing::charge`, `billing::Billing::charge`, or
    /// `<billing::Billing as billing::Charge>::charge`. Each function of a program has a different name.
    #[must_use]
    pub fn function(&self) -> &'static str {
        (self.function)()
    }
}

/// Returns the name of the function around an item, from the type of that item.
#[doc(hidden)]
#[must_use]
pub fn function_name<T>(_: &T) -> &'static str {
    let item = std::any::type_name::<T>();
    let mut name = item.rsplit_once("::").map_or(item, |(function, _)| function);
    // The bodies of async functions are closures.
    while let Some(function) = name.strip_suffix("::{{closure}}") {
        name = function;
    }
    name
}

/// Returns every annotated function that is linked into this program, called or not.
///
/// Empty on platforms whose linker does not collect them, for example NetBSD. There the series of a lock exist only
/// from its first call on.
pub fn sites() -> impl Iterator<Item = &'static Site> {
    SITES.iter()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_the_linker_collects_is_named_after_this_version() {
        let version = format!("LOCK_CORE_{}_{}_", env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
        for registry in [
            include_str!("registry.rs"),
            include_str!("no_registry.rs"),
            include_str!("../../../../stores/lock-store/src/contract/backend/scheme/registry.rs"),
            include_str!("../../../../stores/lock-store/src/contract/backend/scheme/no_registry.rs"),
        ] {
            assert!(
                registry.contains(&format!("pub static {version}S")),
                "name the slice after {version}:\n{registry}"
            );
        }
    }
}
