//! Checks of a fencing token at the resource that a lock protects.

pub(crate) mod gate;
pub(crate) mod write;
