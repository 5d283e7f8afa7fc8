//! Repeated checks: leases that are renewed, and keys whose holder is followed.

pub(crate) mod following;
pub(crate) mod watchdog;
