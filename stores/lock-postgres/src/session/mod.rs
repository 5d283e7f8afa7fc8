//! Sessions of the database, and whether the store can be called in them.

mod connection;
pub(crate) mod migrate;
mod open;
mod password;
mod role;
pub(crate) mod schema;
mod tls;

pub(crate) use connection::Session;
pub(crate) use lock_store::thread::within;
pub(crate) use open::{Opened, open};
