//! Which calls leave together over one connection, and what is known after their answers.

pub(crate) mod coalesce;
pub(crate) mod exchange;
mod inline_task;
mod node;
mod places;
pub(crate) mod unsettled;
