//! An explorer of the protocol: every order of events of small scenarios, on an exact clock.
//!
//! The model holds one or two keys of one server, their queues, the clock that tokens come from, and a few
//! processes with some local callers each. Commands of a process are ordered on its connection, grants
//! travel beside them, and time passes when it likes. Faults strike at any step (`Faults`). A claim wants the
//! lock for itself, or units of it under a limit (`modes`).
//!
//! All rules together must hold in every state that is reached within the bound, and on long walks by a
//! seed. With any one rule removed the explorer must find what goes wrong: a model that finds nothing
//! proves nothing. Rules that others cover for are not here but in `lock-core/tests/engine/grants.rs`.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test, in small numbers")]

mod clock;
mod complete;
mod explore;
mod faults;
mod gate;
mod judge;
mod modes;
mod phase;
mod quorum;
mod receive;
mod removed;
mod scenario;
mod server;
mod sleep;
mod state;
mod steps;
mod story;
mod turns;
mod walk;
