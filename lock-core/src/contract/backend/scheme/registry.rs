//! Schemes that the linker collects.

use crate::contract::backend::scheme::Scheme;

/// Every store that is linked into this program beside our own.
// The linker knows it by this name alone, and its entries have another layout in another version.
#[linkme::distributed_slice]
pub static LOCK_CORE_0_1_SCHEMES: [Scheme];

/// Lets URLs of these schemes name a store. For the crates that have one.
#[doc(hidden)]
#[macro_export]
macro_rules! register_store_scheme {
    ($names:expr, $open:expr) => {
        #[$crate::attribute::linkme::distributed_slice($crate::backend::SCHEMES)]
        #[linkme(crate = $crate::attribute::linkme)]
        static __SCHEME: $crate::backend::Scheme = $crate::backend::Scheme { names: $names, open: $open };
    };
}
