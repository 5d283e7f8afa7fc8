//! Sites on a platform whose linker collects nothing.

use crate::site::Site;

/// Nothing is collected.
pub static SITES: [Site; 0] = [];

/// Makes a static site.
#[doc(hidden)]
#[macro_export]
macro_rules! __register_site {
    ($site:expr) => {{
        static __SITE: $crate::Site = $site;
        &__SITE
    }};
}
