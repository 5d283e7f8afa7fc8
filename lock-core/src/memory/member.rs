//! The store as a member of a quorum.

use std::collections::HashMap;
use std::time::Duration;

use crate::memory::State;
use lock_store::contract::backend::{AcquireRequest, Attempt, MemberList, Vote};
use lock_store::types::mode::Mode;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::{Timestamp, since_epoch};

/// The data that a member of a quorum keeps besides locks.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// When the data was lost, if it ever was.
    lost_at: Option<Timestamp>,
    /// The lists of members in use, and until when each is remembered.
    lists: HashMap<MemberList, Timestamp>,
}

impl State {
    pub(super) fn vote(&mut self, request: &AcquireRequest, now: Timestamp) -> Vote {
        let mut alone = request.clone();
        alone.ticket = None;
        // Members do not support modes.
        alone.claim.mode = Mode::Exclusive;
        let kept = self.owns(&alone.claim, now);
        let history = self.membership.lost_at.map(|lost_at| now.since(lost_at));
        match self.acquire(&alone, now) {
            Attempt::Granted { token, .. } => Vote::Granted { token, kept, history, time: Some(since_epoch(now)) },
            Attempt::Held { holder } | Attempt::Queued { holder } | Attempt::Asleep { holder, .. } => {
                Vote::Held { holder, history }
            }
            // The claim shares the lock with others, which does not count as a vote.
            Attempt::Shared { .. } | Attempt::Contended => Vote::Held { holder: Holder::unseen(), history },
        }
    }

    pub(super) fn remember(
        &mut self,
        list: Option<&MemberList>,
        keep_for: Duration,
        now: Timestamp,
    ) -> Vec<MemberList> {
        let lists = &mut self.membership.lists;
        lists.retain(|_, until| *until > now);
        if let Some(list) = list {
            lists.insert(list.clone(), now.after(keep_for));
        }
        lists.keys().cloned().collect()
    }

    pub(super) fn vouch(&mut self) {
        self.membership.lost_at = None;
    }

    /// Loses all data, like a server that restarts with an empty memory.
    #[cfg(feature = "test-util")]
    pub(super) fn lose_data(&mut self, now: Timestamp) {
        *self = Self {
            inboxes: std::mem::take(&mut self.inboxes),
            membership: Membership { lost_at: Some(now), ..Membership::default() },
            ..Self::default()
        };
    }
}
