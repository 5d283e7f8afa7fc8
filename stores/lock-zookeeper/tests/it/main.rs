//! Locks in ZooKeeper, on real servers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod base;
mod callers;
mod conformance;
mod cuts;
mod earlier;
mod ensemble;
mod growth;
mod history;
mod late;
mod quota;
mod refusals;
mod servers;
mod silence;
mod stopped;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod turns;
mod users;
mod votes;
mod worker;
