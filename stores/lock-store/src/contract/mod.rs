//! The duties of a store, the events for observers, and the checks of a protected resource.

pub mod backend;
pub mod event;
