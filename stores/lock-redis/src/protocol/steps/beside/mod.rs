//! The steps for the keys beside a lock.

pub(crate) mod blocked;
pub(crate) mod done;
pub(crate) mod job;
