//! The atomic steps on the server: for each one its script or commands, their arguments and their answers,
//! side by side.

mod acquire;
mod acquire_all;
mod batch;
mod blocked;
mod holder;
mod messages;
mod release;
#[cfg(feature = "inspect")]
mod release_foreign;
mod renew;
mod run;
pub(crate) mod script;
pub(crate) mod share;
mod take;
mod vote;

use std::time::Duration;

use crate::stores::redis::value;

pub(crate) use acquire::{Acquire, Acquired};
pub(crate) use acquire_all::{AcquireAll, AcquiredAll};
pub(crate) use batch::{NodeCall, NodeTake, has_failed, read_attempt, read_batch};
pub(crate) use blocked::{blocked, read_blocked, set_blocked};
pub(crate) use holder::{holder, read_holder};
#[cfg(any(test, feature = "inspect"))]
pub(crate) use messages::revoking;
pub(crate) use messages::{called, granted, revocation, wanted};
pub(crate) use release::{Holding, each_freed, free_one, freed, release, script as release_script};
#[cfg(feature = "inspect")]
pub(crate) use release_foreign::release_foreign;
pub(crate) use renew::{Unrenewed, raise, raised, renew, unrenewed};
#[cfg(feature = "inspect")]
pub(crate) use run::read_job;
pub(crate) use run::{last_run, note_run, read_last_run};
pub(crate) use take::{Taken, draw, read_taken, take};
pub(crate) use vote::{VoteAnswer, read_lists, read_vote, remember, vote, vouch};

/// Reads an answer of PTTL: -1 is a key that never expires.
pub(crate) fn time_left(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Reads `time left|value`, where the value may be any bytes.
fn held(text: &[u8]) -> Option<crate::types::owner::Holder> {
    let bar = text.iter().position(|byte| *byte == b'|')?;
    let left = std::str::from_utf8(&text[..bar]).ok()?.parse().ok()?;
    Some(value::holder(&text[bar + 1..], time_left(left)))
}

#[cfg(test)]
mod tests;
