//! Real servers, started for one test, and a faulty network before them.

pub(crate) mod cluster;
pub(crate) mod proxy;
pub(crate) mod reply;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod session;
