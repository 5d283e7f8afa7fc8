//! The house rules that a program can check. It needs no server.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod tidy;
