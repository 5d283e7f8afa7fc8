//! From a call of the contract to its answer. Each runs as a task of the store's thread, whatever becomes of its caller.

pub(crate) mod acquire;
pub(crate) mod beside;
pub(crate) mod release;
pub(crate) mod renew;
mod token;
pub(crate) mod vote;
mod wait;

/// How often a step is tried whose nodes other processes make and remove meanwhile.
const TRIES: u32 = 5;
