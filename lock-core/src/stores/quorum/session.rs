//! The memory of this process about a claim, from its first vote to its release.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::types::fencing::FencingToken;
use crate::types::owner::{HolderInfo, OwnerId};
use crate::types::system::clock::Timestamp;
use crate::types::system::sync::{Mutex, MutexGuard};

/// The memory of this process about a claim, from its first vote to its release.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) info: HolderInfo,
    state: Mutex<SessionState>,
    /// Turns true when the claim has ended: no member is asked for the lock any more.
    ended: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
struct SessionState {
    /// The token and the deadline of the lease, once a majority has granted it.
    lease: Option<(FencingToken, Timestamp)>,
    /// By member: what became of the votes.
    votes: Vec<Votes>,
    /// Whether some member did not confirm the last renewal.
    degraded: bool,
}

/// The results of one member's votes for a claim, in all rounds and repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Votes {
    /// Whether the member may have the lock for the claim.
    pub(super) may_have: bool,
    /// Until when it may execute a vote that was not answered.
    pub(super) unsettled: Timestamp,
}

impl Votes {
    const NONE: Self = Self { may_have: false, unsettled: Timestamp::from_nanos(0) };

    /// An unknown claim: it may have the lock by a vote that was answered.
    pub(super) const FORGOTTEN: Self = Self { may_have: true, ..Self::NONE };
}

/// The knowledge about a member before a vote was sent to it, and since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    before: Votes,
    since: Votes,
}

impl Session {
    fn new(info: HolderInfo, members: usize) -> Self {
        let state = SessionState { lease: None, votes: vec![Votes::NONE; members], degraded: false };
        Self { info, state: Mutex::new(state), ended: watch::Sender::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock()
    }

    /// Notes a lease, or that it was raised.
    pub(super) fn raise(&self, token: Option<FencingToken>, deadline: Timestamp) {
        let mut state = self.state();
        state.lease = match (token, state.lease) {
            (Some(token), _) => Some((token, deadline)),
            (None, Some((token, before))) => Some((token, before.max(deadline))),
            (None, None) => None,
        };
    }

    /// Returns the token of the lease while it lasts.
    pub(super) fn live(&self, now: Timestamp) -> Option<FencingToken> {
        self.state().lease.filter(|(_, deadline)| *deadline > now).map(|(token, _)| token)
    }

    /// Notes whether every member confirmed a renewal.
    pub(super) fn renewed_by_all(&self, all: bool) {
        self.state().degraded = !all;
    }

    fn is_degraded(&self, now: Timestamp) -> bool {
        let state = self.state();
        state.degraded && state.lease.is_some_and(|(_, deadline)| deadline > now)
    }

    /// Notes that a vote was sent to a member, which may be executed until some moment.
    pub(super) fn sent(&self, member: usize, until: Timestamp) -> Sent {
        let votes = &mut self.state().votes[member];
        let before = *votes;
        *votes = Votes { may_have: true, unsettled: before.unsettled.max(until) };
        Sent { before, since: *votes }
    }

    /// Notes that every vote of a member is answered, and whether it has the lock for the claim.
    pub(super) fn answered(&self, member: usize, has: bool) {
        self.state().votes[member] = Votes { may_have: has, ..Votes::NONE };
    }

    /// Notes that a vote was certainly not executed: what was known before is all there is, unless another was sent.
    pub(super) fn not_executed(&self, member: usize, sent: Sent) {
        let votes = &mut self.state().votes[member];
        if *votes == sent.since {
            *votes = sent.before;
        }
    }

    /// Returns whether a member may have the lock for the claim.
    pub(super) fn may_have(&self, member: usize) -> bool {
        self.state().votes[member].may_have
    }

    /// Returns by member what became of its votes.
    pub(super) fn votes(&self) -> Vec<Votes> {
        self.state().votes.clone()
    }

    /// Ends the claim.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Waits until the claim has ended.
    pub(super) async fn ended(&self) {
        // Fails only when the session is gone, and then it has ended.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

/// The claims of this process that members may know.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    live: Mutex<HashMap<OwnerId, Arc<Session>>>,
    /// Releases that were not answered, by claim and member. Executed late, one would end a lock that the claim
    /// takes meanwhile, so the member is not asked for it before.
    releasing: Mutex<HashMap<(OwnerId, usize), u32>>,
}

impl Sessions {
    pub(super) fn begin(&self, owner: OwnerId, info: &HolderInfo, members: usize) -> Arc<Session> {
        let mut live = self.live();
        Arc::clone(live.entry(owner).or_insert_with(|| Arc::new(Session::new(info.clone(), members))))
    }

    pub(super) fn get(&self, owner: OwnerId) -> Option<Arc<Session>> {
        self.live().get(&owner).cloned()
    }

    /// Ends a claim, and returns what is known of it.
    pub(super) fn end(&self, owner: OwnerId) -> Option<Arc<Session>> {
        let session = self.live().remove(&owner);
        if let Some(session) = &session {
            session.end();
        }
        session
    }

    /// Returns how many leases last that some member did not confirm when they were last renewed.
    pub(super) fn degraded(&self, now: Timestamp) -> usize {
        self.live().values().filter(|session| session.is_degraded(now)).count()
    }

    /// Counts a release on its way until it is dropped.
    pub(super) fn releasing(self: &Arc<Self>, owner: OwnerId, member: usize) -> Releasing {
        *self.releases().entry((owner, member)).or_default() += 1;
        Releasing { sessions: Arc::clone(self), key: (owner, member) }
    }

    /// Returns how many releases of a member are counted.
    pub(super) fn releases_at(&self, member: usize) -> usize {
        self.releases().iter().filter(|((_, at), _)| *at == member).map(|(_, count)| *count as usize).sum()
    }

    pub(super) fn is_releasing(&self, owner: OwnerId, member: usize) -> bool {
        self.releases().contains_key(&(owner, member))
    }

    fn live(&self) -> MutexGuard<'_, HashMap<OwnerId, Arc<Session>>> {
        self.live.lock()
    }

    fn releases(&self) -> MutexGuard<'_, HashMap<(OwnerId, usize), u32>> {
        self.releasing.lock()
    }
}

/// A release on its way to a member.
#[derive(Debug)]
pub(super) struct Releasing {
    sessions: Arc<Sessions>,
    key: (OwnerId, usize),
}

impl Drop for Releasing {
    fn drop(&mut self) {
        let mut releases = self.sessions.releases();
        if let Some(count) = releases.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                releases.remove(&self.key);
            }
        }
    }
}
