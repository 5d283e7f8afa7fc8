//! The commands, a file for each.

pub(crate) mod contention;
pub(crate) mod dashboards;
pub(crate) mod doctor;
pub(crate) mod forget;
pub(crate) mod jobs;
pub(crate) mod leader;
pub(crate) mod lease;
pub(crate) mod locks;
pub(crate) mod quorum;
pub(crate) mod release;
pub(crate) mod topology;
pub(crate) mod watch;
pub(crate) mod why;
