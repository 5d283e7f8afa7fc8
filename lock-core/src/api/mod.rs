//! The interface for users.

pub(crate) mod connect;
pub(crate) mod fencing;
pub(crate) mod global;
pub(crate) mod guard;
#[cfg(feature = "inspect")]
pub mod inspect;
pub mod lease;
pub(crate) mod lock;
pub(crate) mod manager;
pub(crate) mod outcome;
pub(crate) mod overriding;
pub(crate) mod protect;
pub(crate) mod roles;
pub(crate) mod shutdown;
pub(crate) mod stripe;
pub(crate) mod striped;
pub(crate) mod web;
