//! Sites that the linker collects.

use crate::attribute::site::Site;

/// Every annotated function linked into this program.
#[linkme::distributed_slice]
pub static SITES: [Site];

/// Makes a static site, and puts it into the registry.
#[doc(hidden)]
#[macro_export]
macro_rules! __register_site {
    ($label:expr, $ttl:expr, $stuck_after:expr) => {{
        fn __site() {}
        fn __function() -> &'static str {
            $crate::attribute::function_name(&__site)
        }
        #[$crate::attribute::linkme::distributed_slice($crate::attribute::SITES)]
        #[linkme(crate = $crate::attribute::linkme)]
        static __SITE: $crate::Site = $crate::Site::new($label, __function, $ttl, $stuck_after);
        &__SITE
    }};
}
