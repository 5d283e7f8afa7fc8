//! Real servers, started for one test, and a faulty network in front of them.

pub(crate) mod cluster;
#[cfg(unix)]
pub(crate) mod installed;
#[cfg(unix)]
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod relative;
pub(crate) mod reply;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod session;
