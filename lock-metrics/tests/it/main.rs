//! Metrics that touch nothing process-wide. What does has a test binary of its own.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod catalogue;
mod http;
mod inspector;
mod live;
mod manager;
mod now;
mod random;
mod series;
mod sites;
mod threads;
mod view;
