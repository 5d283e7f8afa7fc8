//! Runs every example as its users do: as a program.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod figures;
mod flash_sale;
mod on_redis;
mod packages;
mod pages;
mod program;
mod rlock;
mod small;
#[cfg(unix)]
mod sql;
mod stuck;
mod testing_page;
mod web_service;
