//! Schemes that the linker collects.

use crate::contract::backend::scheme::Scheme;

/// Every store that is linked into this program besides those of this crate.
// The linker knows the list by this name only. The version is part of the name, because entries of another version have
// another layout.
#[linkme::distributed_slice]
pub static LOCK_CORE_0_1_SCHEMES: [Scheme];

/// Lets URLs of these schemes name a store. Crates with a store call it.
#[doc(hidden)]
#[macro_export]
macro_rules! register_store_scheme {
    ($names:expr, $open:expr) => {
        #[$crate::linkme::distributed_slice($crate::contract::backend::SCHEMES)]
        #[linkme(crate = $crate::linkme)]
        static __SCHEME: $crate::contract::backend::Scheme =
            $crate::contract::backend::Scheme { names: $names, open: $open };
    };
}
