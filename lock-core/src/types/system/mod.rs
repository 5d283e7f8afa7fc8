//! Services of the machine: time, randomness, mutexes, and the source location of a call.

pub(crate) mod backoff;
pub(crate) mod blocking;
pub(crate) mod call_site;
pub(crate) mod clock;
pub(crate) mod fork;
pub(crate) mod random;
pub(crate) mod sync;
pub mod text;
