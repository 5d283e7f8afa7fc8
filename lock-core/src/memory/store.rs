//! The contract of a store, over the state in memory.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::{MemoryStore, check_floor};
use lock_store::contract::backend::{
    AcquireRequest, Attempt, AttemptAll, Blocked, BlockedNotes, Capabilities, Claim, DoneMark, DoneMarks, Freed, Inbox,
    Inspector, JobRecord, JobRecords, JobVersion, LockBackend, MemberList, QuorumMember, Release, Renewal,
    SharedClaims, Vote,
};
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::Clock;

impl LockBackend for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::polled().with_queue();
        (known.modes, known.shared) = (true, false);
        known
    }

    fn attach(&self, clock: &Clock) {
        let _ = self.shared.clock.set(clock.clone());
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.state().inboxes.insert(Arc::clone(inbox.id()), inbox.clone());
        let _registered = Registered { store: self, inbox: &inbox };
        inbox.set_open(true);
        pending().await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        check_floor(request, self.now())?;
        Ok(self.command()?.acquire(request, self.now()))
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        requests.iter().try_for_each(|request| check_floor(request, self.now()))?;
        Ok(self.command()?.acquire_all(requests, self.now()))
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt> {
        check_floor(request, self.now())?;
        Ok(self.command()?.requeue(release, request, self.now()))
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        let now = self.now();
        match self.command() {
            Ok(mut state) => one_lane.iter().map(|claim| Ok(state.renew(claim, now))).collect(),
            Err(error) => vec![Err(error); one_lane.len()],
        }
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        Ok(self.command()?.free(release, self.now()))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        Ok(self.command()?.free(&Release::new(claim.clone()), self.now()))
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        Ok(self.command()?.holder(key, self.now()))
    }

    lock_store::has_parts! {
        shared: SharedClaims, member: QuorumMember, blocking: BlockedNotes,
        jobs: JobRecords, marks: DoneMarks, inspector: Inspector
    }
}

impl SharedClaims for MemoryStore {
    async fn downgrade(&self, claim: &Claim, token: FencingToken) -> Result<Renewal> {
        Ok(self.command()?.downgrade(claim, token, self.now()))
    }

    async fn holders(&self, key: &LockKey) -> Result<Vec<Holder>> {
        let now = self.now();
        let state = self.command()?;
        let alone = state.locks.get(key).filter(|slot| slot.expires > now).map(|slot| slot.holder(now));
        Ok(alone.into_iter().chain(state.sharers(key, now)).collect())
    }
}

impl QuorumMember for MemoryStore {
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        check_floor(request, self.now())?;
        Ok(self.command()?.vote(request, self.now()))
    }

    async fn remember(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        Ok(self.command()?.remember(list, keep_for, self.now()))
    }

    async fn vouch(&self) -> Result<()> {
        self.command()?.vouch();
        Ok(())
    }
}

impl BlockedNotes for MemoryStore {
    async fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> Result<()> {
        drop(self.command()?);
        self.shared.blocked.set(key, blocked, self.now());
        Ok(())
    }

    async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        drop(self.command()?);
        Ok(self.shared.blocked.get(key, self.now()))
    }
}

impl JobRecords for MemoryStore {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        Ok(self.command()?.last_run(key, self.now()))
    }
}

impl DoneMarks for MemoryStore {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        Ok(self.command()?.done(key, version, self.now()))
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        Ok(self.command()?.mark_done(claim, version, keep, self.now()))
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        Ok(self.command()?.forget_done(key, version, self.now()))
    }
}

/// Removes an inbox from the list when its process goes away.
struct Registered<'a> {
    store: &'a MemoryStore,
    inbox: &'a Inbox,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.inbox.set_open(false);
        self.store.state().inboxes.remove(self.inbox.id());
    }
}
