//! One server: its connections, and what it tells by itself.

pub(crate) mod changes;
pub(crate) mod checks;
pub(crate) mod collisions;
pub(crate) mod common;
pub(crate) mod history;
pub(crate) mod node;
pub(crate) mod pool;
pub(crate) mod push;
pub(crate) mod repeats;
pub(crate) mod rounds;
pub(crate) mod slot_inboxes;
pub(crate) mod slot_push;
