//! Locks in Kubernetes, on a real API server.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

mod busy;
mod client_go;
mod conformance;
mod example;
mod hands;
#[path = "../../../lock-zookeeper/tests/it/history.rs"]
mod history;
mod outages;
mod requests;
mod rights;
#[allow(dead_code, reason = "some of it is for the tests of lockctl and for tests to come")]
mod servers;
mod stopped;
mod support;
mod watches;
#[path = "../../../lock-zookeeper/tests/it/worker.rs"]
#[allow(dead_code, reason = "some of it is for the tests of lock-zookeeper")]
mod worker;
