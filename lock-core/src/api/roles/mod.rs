//! Tasks that one process of a fleet does for all: it leads, it runs a job, or it does the work of a version once.

pub(crate) mod election;
pub(crate) mod job;
pub(crate) mod once;
