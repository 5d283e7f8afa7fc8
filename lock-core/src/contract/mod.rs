//! The duties of a store, the events for observers, and the checks of a protected resource.

pub mod backend;
pub(crate) mod event;
pub(crate) mod fenced_write;
pub(crate) mod fencing_gate;
