//! The servers of a run, and what stands between them and their clients.

pub(crate) mod files;
pub(crate) mod keeper;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod spy;
