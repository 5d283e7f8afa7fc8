//! Services of the machine: time, randomness, mutexes, and the source location of a call.

pub mod backoff;
pub mod blocking;
pub mod call_site;
pub mod clock;
pub mod fork;
pub mod random;
pub mod sync;
pub mod text;
pub mod together;
