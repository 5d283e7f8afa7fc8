//! The parts that scripts are made of, in the order in which they come: each knows those before it.
//!
//! All of them use the constants of `layout.lua`. Code that only waiters or sharers need stands in a function. The function is made
//! only where a call needs it, because most calls end before.

use crate::protocol::steps::script::Part;

/// Draws tokens.
pub const CLOCK: Part = include_str!("clock.lua");

/// Reads and writes one lock.
pub(crate) const LOCK: Part = include_str!("lock.lua");

/// Packs and unpacks what is known of a waiter.
pub(crate) const ENTRY: Part = include_str!("entry.lua");

/// The places in a queue, behind [`CLOCK`] and [`ENTRY`].
pub(crate) const PLACES: [Part; 2] = [LOCK, include_str!("queue.lua")];

/// All of the queue, behind [`CLOCK`] and [`ENTRY`]; and the function `phases`, for locks that are shared.
pub(crate) const QUEUE: [Part; 11] = [
    PLACES[0],
    PLACES[1],
    include_str!("window.lua"),
    include_str!("tell.lua"),
    include_str!("grant.lua"),
    "phases = function()\n",
    include_str!("phase/read.lua"),
    include_str!("phase/write.lua"),
    include_str!("phase/walk.lua"),
    include_str!("phase/steps.lua"),
    "end\n",
];

/// Frees one lock that has a queue, and passes it on.
pub(crate) const FREE: Part = include_str!("free.lua");

/// Passes a lock on by a few commands, without any other part.
pub(crate) const PASS: Part = include_str!("pass.lua");

/// The memory of a quorum's member.
pub(crate) const MEMBER: Part = include_str!("member.lua");
