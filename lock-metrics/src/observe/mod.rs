//! The observer of events, and the sampler of holds that have become stuck without an event.

mod notices;
pub(crate) mod observer;
pub(crate) mod sampler;
