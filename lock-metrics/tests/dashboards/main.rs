//! Dashboards, rules and runbooks: that they are what the code generates, that Grafana's linter would
//! pass them, that each name in them exists, and that each metric is looked at somewhere.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../../examples/dashboards/generate/mod.rs"]
mod generate;

mod expressions;
mod files;
mod labels;
mod lint;
mod promql;
