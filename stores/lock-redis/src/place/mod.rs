//! Which server serves what: URLs, sentinels, slots, redirections.

pub(crate) mod builder;
pub(crate) mod common;
pub(crate) mod discovery;
pub(crate) mod history;
pub(crate) mod redirect;
pub(crate) mod repeats;
pub(crate) mod sentinel;
pub(crate) mod slots;
