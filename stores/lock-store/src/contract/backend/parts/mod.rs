//! The parts of the contract that a store may leave out, each with its requests and answers.

pub(super) mod blocked;
pub(super) mod doctor;
pub(super) mod done;
pub(super) mod inspector;
pub(super) mod job;
pub(super) mod shared;
pub(super) mod vote;
