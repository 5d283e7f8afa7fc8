//! Connections: how one is opened, what is sent over it together, and how an answer is read.

pub(crate) mod batch;
pub(crate) mod certificates;
pub(crate) mod coalesce;
pub(crate) mod connect;
pub(crate) mod credentials;
pub(crate) mod exchange;
pub(crate) mod greeting;
pub(crate) mod inline_task;
pub(crate) mod link;
#[cfg(feature = "tls")]
pub(crate) mod pem;
pub(crate) mod settings;
pub(crate) mod unsettled;
pub(crate) mod url;
