//! The machinery between a request and a store: queues, claims, leases and the watchdog. It does not depend on any
//! store.

pub(crate) mod acquire;
pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod fnv;
pub(crate) mod gate;
pub(crate) mod handle;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod lease;
pub(crate) mod report;
pub(crate) mod shared;
pub(crate) mod timer;
pub(crate) mod watch;
