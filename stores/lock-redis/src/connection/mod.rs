//! From a URL to an open connection, and what a server says about itself and where keys are.

pub(crate) mod certificates;
pub(crate) mod connect;
pub(crate) mod credentials;
pub(crate) mod greeting;
pub(crate) mod link;
#[cfg(feature = "tls")]
pub(crate) mod pem;
pub(crate) mod redirect;
pub(crate) mod slots;
pub(crate) mod url;
