//! Schemes on a platform whose linker collects nothing. Such a store must be given to `LockManager::builder`.

use crate::contract::backend::scheme::Scheme;

/// The empty list.
pub static LOCK_CORE_0_1_SCHEMES: [Scheme; 0] = [];

/// Does nothing on this platform.
#[doc(hidden)]
#[macro_export]
macro_rules! register_store_scheme {
    ($names:expr, $open:expr) => {};
}
