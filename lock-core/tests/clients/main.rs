//! Whole managers beside other libraries, in Rust and in other languages.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod coexistence;
mod foreign;
mod migrating;
mod other_language;
mod peers;
#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the program `redis` uses all of it")]
mod support;
#[path = "../worker/mod.rs"]
mod worker;
