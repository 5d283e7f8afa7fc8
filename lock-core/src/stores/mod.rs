//! The stores: in memory, on Redis, and a quorum of several. They know nothing of the machinery.

pub(crate) mod memory;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
