//! Locks in Redisson's layout, on real servers and beside Redisson itself.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod conformance;
mod fleet;
mod java;
mod moves;
mod node;
mod redisson;
mod support;
mod waiting;
mod wire;
