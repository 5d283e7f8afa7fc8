//! What hears events, and what looks at the holds that events cannot tell of.

mod notices;
pub(crate) mod observer;
pub(crate) mod sampler;
