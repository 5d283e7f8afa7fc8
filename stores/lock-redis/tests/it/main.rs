//! The Redis store before real servers, and before services that only speak its protocol.

mod doctor;
mod exposed;
mod relatives;
