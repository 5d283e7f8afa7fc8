//! The steps on one lock.

pub(crate) mod acquire;
pub(crate) mod holder;
pub(crate) mod native;
pub(crate) mod release;
#[cfg(feature = "inspect")]
pub(crate) mod release_foreign;
pub(crate) mod renew;
