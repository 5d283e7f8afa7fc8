//! What is looked at again and again: leases that are renewed, keys whose holder is followed.

pub(crate) mod following;
pub(crate) mod watchdog;
