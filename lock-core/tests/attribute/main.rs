//! Integration tests of the attribute, in one binary.

#![deny(warnings)]
#![allow(clippy::disallowed_methods, reason = "tests may sleep and spawn")]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "helpers of tests are tests too")]

mod behaviour;
mod blocking;
mod durability;
mod hygiene;
mod jobs;
mod loss;
mod matrix;
mod mistakes;
mod modes;
mod once;
mod options;
mod order;
mod overrides;
mod returned;
mod shapes;
mod sites;
mod size;
mod support;
