//! Tests on a real PostgreSQL.

mod bad_input;
mod conformance;
mod pin;
mod queue;
mod support;
