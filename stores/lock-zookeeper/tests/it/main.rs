//! Locks in ZooKeeper, on real servers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod callers;
mod conformance;
mod cuts;
mod ensemble;
mod growth;
mod history;
mod refusals;
mod servers;
mod stopped;
mod support;
mod users;
mod worker;
