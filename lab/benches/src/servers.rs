//! The servers of a run, and the proxy in front of them.

pub(crate) mod files;
pub(crate) mod keeper;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod spy;
