//! The stores: in memory, on Redis, and a quorum of several. They do not depend on the machinery.

pub(crate) mod memory;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
