//! Whole managers on several servers (clusters, sentinels, quorums), and on services that only speak the protocol of Redis.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod cluster;
mod conformance;
mod doctor;
mod leases;
mod own_connection;
mod quorum;
mod relatives;
mod sentinel;
#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the program `redis` uses all of it")]
mod support;
#[path = "../worker/mod.rs"]
mod worker;
