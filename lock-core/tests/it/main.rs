//! Integration tests of lock-core, in one binary.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

#[cfg(feature = "redis")]
mod all_at_once;
mod all_in_order;
#[cfg(feature = "redis")]
mod background;
mod bad_input;
mod blocking;
#[cfg(feature = "redis")]
mod budgets;
#[cfg(feature = "redis")]
mod cancellation;
#[cfg(feature = "redis")]
mod checker;
#[cfg(feature = "redis")]
mod cluster;
#[cfg(feature = "redis")]
mod coexistence;
mod configuration;
mod conformance;
#[cfg(feature = "redis")]
mod contention;
mod deadline;
mod deadlock;
mod election;
mod far_store;
#[cfg(feature = "redis")]
mod faults;
#[cfg(feature = "redis")]
mod fenced_write;
#[cfg(feature = "redis")]
mod first_lock;
mod grants;
#[cfg(feature = "redis")]
mod handoff;
mod jobs;
mod key_typos;
#[cfg(all(feature = "macros", feature = "serde"))]
mod leases;
#[cfg(feature = "redis")]
mod lockstep;
#[cfg(feature = "redis")]
mod loss;
mod machinery;
#[cfg(feature = "redis")]
mod migrating;
mod modes;
#[cfg(feature = "redis")]
mod modes_on_redis;
#[cfg(feature = "redis")]
mod observers;
mod once;
mod order;
#[cfg(feature = "redis")]
mod other_language;
#[cfg(feature = "redis")]
mod own_connection;
#[cfg(feature = "redis")]
mod peers;
#[cfg(feature = "redis")]
mod processes;
#[cfg(feature = "redis")]
mod proxy;
#[cfg(feature = "redis")]
mod push;
mod quorum;
#[cfg(feature = "redis")]
mod redis_builder;
#[cfg(feature = "redis")]
mod redis_store;
#[cfg(feature = "redis")]
mod secrets;
#[cfg(feature = "redis")]
mod sentinel;
#[cfg(all(feature = "redis", target_os = "linux"))]
mod server_clock;
mod sessions;
mod shutdown;
mod simulation;
#[cfg(feature = "redis")]
mod sleepers;
mod spans;
mod starving;
mod striped;
#[cfg(feature = "redis")]
mod support;
mod tidy;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "redis")]
mod upgrading;
mod waiting;
#[cfg(all(feature = "axum", feature = "tower", feature = "macros"))]
mod web;
#[cfg(feature = "redis")]
mod worker;
#[cfg(feature = "inspect")]
mod wrong_state;
