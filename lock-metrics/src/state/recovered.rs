//! Stuck holds that ended, kept until the sampler reports them.

use std::time::Duration;

use lock_core::{FencingToken, LockEvent, LockKey, LockLabel, OwnerId};

use crate::state::table::Hold;

/// A stuck hold that ended.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) label: LockLabel,
    pub(crate) key: LockKey,
    pub(crate) site: Box<str>,
    pub(crate) owner: OwnerId,
    pub(crate) token: FencingToken,
    pub(crate) held: Duration,
    pub(crate) outcome: &'static str,
}

impl Recovered {
    pub(crate) fn new(event: &LockEvent<'_>, hold: &Hold, held: Duration, outcome: &'static str) -> Self {
        Self {
            label: event.label.clone(),
            key: event.key.clone(),
            site: event.site.into(),
            owner: hold.owner,
            token: hold.token,
            held,
            outcome,
        }
    }
}
