//! What observers and traces are told.

pub(crate) mod event_context;
pub(crate) mod trace;
