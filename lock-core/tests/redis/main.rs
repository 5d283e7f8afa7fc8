//! Whole managers and the Redis store, mostly on one real server. `topologies` has several servers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod all_at_once;
mod background;
mod bad_input;
mod blocking;
mod budgets;
mod cancellation;
mod checker;
#[path = "../support/collector.rs"]
#[allow(dead_code, reason = "the program `engine` uses all of it")]
mod collector;
mod conformance;
mod contention;
mod deadlock;
mod election;
mod faults;
mod fenced_write;
mod first_lock;
mod handoff;
mod jobs;
mod lockstep;
mod loss;
mod modes_on_redis;
mod observers;
mod processes;
mod proxy;
mod push;
mod redis_builder;
mod redis_store;
#[path = "../support/rings.rs"]
mod rings;
mod secrets;
#[cfg(target_os = "linux")]
mod server_clock;
mod shutdown;
mod sleepers;
mod striped;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod upgrading;
mod waiting;
#[path = "../support/waits.rs"]
mod waits;
#[path = "../worker/mod.rs"]
mod worker;
mod wrong_state;
