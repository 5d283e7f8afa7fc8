//! The steps on one lock.

pub(crate) mod acquire;
pub(crate) mod holder;
pub(crate) mod native;
pub(crate) mod release;
pub(crate) mod renew;
