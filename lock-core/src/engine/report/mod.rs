//! The output for observers and traces.

pub(crate) mod event_context;
pub(crate) mod trace;
