//! The steps at a member of a quorum.

pub(crate) mod vote;
