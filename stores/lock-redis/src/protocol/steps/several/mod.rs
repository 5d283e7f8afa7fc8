//! The steps on several locks at once.

pub(crate) mod acquire_all;
pub(crate) mod batch;
pub(crate) mod places;
