//! Sites that the linker collects.

use crate::attribute::site::Site;

/// Every annotated function that is linked into this program.
// The linker knows the list by this name only. The version is part of the name, because entries of another version have
// another layout.
#[linkme::distributed_slice]
pub static LOCK_CORE_0_1_SITES: [Site];

/// Makes a static site, and adds it to the registry.
#[doc(hidden)]
#[macro_export]
macro_rules! __register_site {
    ($label:expr, $ttl:expr, $stuck_after:expr) => {{
        fn __site() {}
        #[$crate::attribute::linkme::distributed_slice($crate::attribute::SITES)]
        #[linkme(crate = $crate::attribute::linkme)]
        static __SITE: $crate::Site =
            $crate::Site::new($label, || $crate::attribute::function_name(&__site), $ttl, $stuck_after);
        &__SITE
    }};
}
