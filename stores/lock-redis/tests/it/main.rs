//! The Redis store before real servers, and before services that only speak its protocol.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod doctor;
mod exposed;
mod relatives;
