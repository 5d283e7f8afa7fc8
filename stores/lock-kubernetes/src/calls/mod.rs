//! From a call of the contract to its answer. Each runs as a task of the store's thread, whatever becomes of its caller.

pub(crate) mod acquire;
pub(crate) mod beside;
mod change;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod wait;
