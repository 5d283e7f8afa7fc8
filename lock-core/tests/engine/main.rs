//! The engine over stores in memory, mostly in virtual time. It needs no server.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod all_in_order;
#[path = "../support/collector.rs"]
mod collector;
mod configuration;
mod conformance;
mod deadline;
mod deadlock;
mod election;
mod far_store;
mod grants;
mod jobs;
mod key_typos;
#[cfg(all(feature = "macros", feature = "serde"))]
mod leases;
mod machinery;
mod modes;
mod once;
mod order;
#[path = "../support/rings.rs"]
mod rings;
mod sessions;
mod shutdown;
mod simulation;
mod spans;
mod starving;
mod striped;
mod waiting;
#[path = "../support/waits.rs"]
mod waits;
#[cfg(all(feature = "axum", feature = "tower", feature = "macros"))]
mod web;
