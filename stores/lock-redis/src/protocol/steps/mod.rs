//! The atomic steps on the server: for each one its script or commands, their arguments and their answers,
//! side by side. A new one is a function that returns a [`Step`](step::Step), in a file with its script and the method of the
//! contract that runs it. Routing, redirections, coalescing and errors are there already. In all, a new operation of a part of
//! the contract has six files: that part and its line in `erased`, `lock-core/src/memory`, a rule in `lock-testing/src/conformance`, and these two.

mod beside;
mod lib;
mod lock;
mod member;
mod messages;
pub(crate) mod script;
mod several;
pub(crate) mod share;
pub(crate) mod step;

use std::time::Duration;

use crate::protocol::value;

#[cfg(test)]
pub(crate) use beside::blocked::{read_blocked, write_blocked};
#[cfg(feature = "inspect")]
pub(crate) use beside::done::read_mark;
#[cfg(test)]
pub(crate) use beside::done::{read_done, remove_done, write_done};
pub(crate) use beside::job::note_run;
#[cfg(feature = "inspect")]
pub(crate) use beside::job::read_job;
#[cfg(test)]
pub(crate) use beside::job::read_job_of;
pub use lib::CLOCK as CLOCK_LUA;
pub(crate) use lock::acquire::{Acquire, Acquired};
pub(crate) use lock::holder::read_holder;
pub(crate) use lock::native::{Taken, draw, read_taken, take};
pub(crate) use lock::release::{each_freed, free_one, freed, refusal, release, try_out};
#[cfg(feature = "inspect")]
pub(crate) use lock::release::{release_foreign, try_out_at};
pub(crate) use lock::renew::{Unrenewed, renew, unrenewed};
pub(crate) use member::vote::{VoteAnswer, read_lists, read_vote, remember, vote, vouch};
#[cfg(any(test, feature = "inspect"))]
pub use messages::revoking;
pub(crate) use messages::{called, granted, revocation, wanted};
pub(crate) use several::acquire_all::{AcquireAll, AcquiredAll};
pub(crate) use several::batch::{NodeCall, NodeTake, has_failed, read_attempt, read_batch};
pub(crate) use several::places::{confirm, read_confirmed, whereabouts};

/// Reads an answer of PTTL: -1 is a key that never expires.
#[must_use]
pub fn time_left(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Reads `time left|value`, where the value may be any bytes.
fn held(text: &[u8]) -> Option<lock_store::types::owner::Holder> {
    let bar = text.iter().position(|byte| *byte == b'|')?;
    let left = std::str::from_utf8(&text[..bar]).ok()?.parse().ok()?;
    Some(value::holder(&text[bar + 1..], time_left(left)))
}

#[cfg(test)]
mod tests;
