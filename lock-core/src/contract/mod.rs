//! What a store must do, what an observer hears, and what a protected resource checks.

pub mod backend;
pub(crate) mod event;
pub(crate) mod fenced_write;
pub(crate) mod fencing_gate;
