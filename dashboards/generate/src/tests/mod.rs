//! Dashboards, rules and runbooks are what the code generates and satisfy the rules of Grafana's linter. Each name in
//! them exists, and each metric is used somewhere.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod delivery;
mod expressions;
mod files;
mod labels;
mod lint;
mod promql;
mod rules;
mod sturdy;
