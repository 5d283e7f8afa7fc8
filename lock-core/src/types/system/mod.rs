//! What the machine gives: time, randomness, mutexes, where in the source a call stands.

pub(crate) mod backoff;
pub(crate) mod blocking;
pub(crate) mod call_site;
pub(crate) mod clock;
pub(crate) mod fork;
pub(crate) mod random;
pub(crate) mod sync;
pub mod text;
