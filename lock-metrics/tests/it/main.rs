//! Tests of metrics that change nothing process-wide. Tests that do have their own test binaries.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../support/mod.rs"]
mod support;

mod blame;
mod bounds;
mod catalogue;
mod http;
mod inspector;
mod live;
mod manager;
mod now;
mod random;
mod roles;
mod series;
mod sites;
mod stores;
mod threads;
mod traces;
mod uses;
mod view;
