//! From a call of the contract to its answer on one server: which step is tried first, and what follows.

pub(crate) mod acquire;
pub(crate) mod durability;
pub(crate) mod elsewhere;
pub(crate) mod keep;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod share;
pub(crate) mod vote;
pub(crate) mod wrong_type;
