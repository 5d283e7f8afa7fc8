//! Schemes on a platform whose linker collects nothing: such a store is given to `LockManager::builder`.

use crate::contract::backend::scheme::Scheme;

/// Nothing is collected.
pub static LOCK_CORE_0_1_SCHEMES: [Scheme; 0] = [];

/// Does nothing here.
#[doc(hidden)]
#[macro_export]
macro_rules! register_store_scheme {
    ($names:expr, $open:expr) => {};
}
