//! Tests on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod bad_input;
mod callers;
mod clocks;
mod conformance;
mod crashes;
mod doctor;
mod faults;
mod hostile;
mod idle;
mod inspect;
mod marks;
mod migrations;
mod pin;
mod pooled;
mod prepared;
mod queue;
mod race;
mod refusals;
mod renewals;
mod sessions;
mod signals;
mod silence;
mod stalls;
mod standbys;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod uncontended;
mod values;
mod zoo;
