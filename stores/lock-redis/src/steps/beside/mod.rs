//! What is kept beside a lock.

pub(crate) mod blocked;
pub(crate) mod done;
pub(crate) mod job;
