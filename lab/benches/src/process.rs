//! The processes of a run: their jobs, their work and their reports.

pub(crate) mod fleet;
pub(crate) mod instructions;
pub(crate) mod job;
pub(crate) mod load;
pub(crate) mod record;
pub(crate) mod wire;
pub(crate) mod work;
pub(crate) mod worker;
