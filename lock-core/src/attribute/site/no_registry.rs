//! Sites on a platform whose linker collects nothing.

use crate::attribute::site::Site;

/// The empty list.
pub static LOCK_CORE_0_1_SITES: [Site; 0] = [];

/// Makes a static site.
#[doc(hidden)]
#[macro_export]
macro_rules! __register_site {
    ($label:expr, $ttl:expr, $stuck_after:expr) => {{
        fn __site() {}
        static __SITE: $crate::Site =
            $crate::Site::new($label, || $crate::attribute::function_name(&__site), $ttl, $stuck_after);
        &__SITE
    }};
}
