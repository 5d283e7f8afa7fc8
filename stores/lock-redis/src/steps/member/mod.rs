//! What is asked of a member of a quorum.

pub(crate) mod vote;
