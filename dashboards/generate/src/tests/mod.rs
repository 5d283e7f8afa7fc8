//! Dashboards, rules and runbooks: they are what the code generates, they satisfy the rules of
//! Grafana's linter, each name in them exists, and each metric is used somewhere.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod expressions;
mod files;
mod labels;
mod lint;
mod promql;
mod sturdy;
