//! The boxed twin of the contract, so that handles carry no type parameter.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::{
    AcquireRequest, Attempt, AttemptAll, Blocked, Capabilities, Claim, Freed, Inbox, JobRecord, LockBackend,
    MemberList, Release, Renewal, SyncReport, Vote,
};
use crate::types::error::{LockError, Result};
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::options::Durability;
use crate::types::owner::Holder;
use crate::types::system::clock::Clock;

/// A future on the heap.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The boxed twin of [`LockBackend`], so that handles carry no type parameter.
pub(crate) trait DynBackend: Debug + Send + Sync {
    fn capabilities_dyn(&self) -> Capabilities;
    fn attach_dyn(&self, clock: &Clock);
    fn drive_dyn(self: Arc<Self>, inbox: Inbox) -> BoxFuture<'static, LockError>;
    fn ping_dyn(self: Arc<Self>) -> BoxFuture<'static, Result<()>>;
    fn history_dyn(&self) -> Option<Arc<str>>;
    fn lane_dyn(&self, key: &LockKey) -> u16;
    fn node_dyn(&self, lane: u16) -> &str;
    fn durability_dyn(&self) -> Durability;
    fn failovers_dyn(&self, lane: u16) -> u64;
    fn has_failed_over_dyn(&self, lane: u16, before: u64) -> bool;
    fn is_contended_dyn(&self, key: &LockKey) -> bool;
    fn try_acquire_dyn(self: Arc<Self>, request: AcquireRequest) -> BoxFuture<'static, Result<Attempt>>;
    fn try_acquire_all_dyn(self: Arc<Self>, requests: Vec<AcquireRequest>) -> BoxFuture<'static, Result<AttemptAll>>;
    fn requeue_dyn(self: Arc<Self>, release: Release, request: AcquireRequest) -> BoxFuture<'static, Result<Attempt>>;
    fn renew_dyn(self: Arc<Self>, one_lane: Vec<Claim>) -> BoxFuture<'static, Vec<Result<Renewal>>>;
    fn release_dyn(self: Arc<Self>, release: Release) -> BoxFuture<'static, Result<Freed>>;
    fn withdraw_dyn(self: Arc<Self>, claim: Claim) -> BoxFuture<'static, Result<Freed>>;
    fn downgrade_dyn(self: Arc<Self>, claim: Claim, token: FencingToken) -> BoxFuture<'static, Result<Renewal>>;
    fn holder_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Option<Holder>>>;
    fn holders_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Vec<Holder>>>;
    fn set_blocked_dyn(self: Arc<Self>, key: LockKey, blocked: Option<Blocked>) -> BoxFuture<'static, Result<()>>;
    fn blocked_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Option<Blocked>>>;
    fn last_run_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Option<JobRecord>>>;
    fn sync_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, SyncReport>;
    fn vote_dyn(self: Arc<Self>, request: AcquireRequest) -> BoxFuture<'static, Result<Vote>>;
    fn remember_dyn(
        self: Arc<Self>,
        list: Option<MemberList>,
        keep_for: Duration,
    ) -> BoxFuture<'static, Result<Vec<MemberList>>>;
    fn vouch_dyn(self: Arc<Self>) -> BoxFuture<'static, Result<()>>;
}

impl<B: LockBackend> DynBackend for B {
    fn capabilities_dyn(&self) -> Capabilities {
        self.capabilities()
    }

    fn attach_dyn(&self, clock: &Clock) {
        self.attach(clock);
    }

    fn drive_dyn(self: Arc<Self>, inbox: Inbox) -> BoxFuture<'static, LockError> {
        Box::pin(async move { self.drive(inbox).await })
    }

    fn ping_dyn(self: Arc<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.ping().await })
    }

    fn history_dyn(&self) -> Option<Arc<str>> {
        self.history()
    }

    fn lane_dyn(&self, key: &LockKey) -> u16 {
        self.lane(key)
    }

    fn node_dyn(&self, lane: u16) -> &str {
        self.node(lane)
    }

    fn durability_dyn(&self) -> Durability {
        self.durability()
    }

    fn failovers_dyn(&self, lane: u16) -> u64 {
        self.failovers(lane)
    }

    fn has_failed_over_dyn(&self, lane: u16, before: u64) -> bool {
        self.has_failed_over(lane, before)
    }

    fn is_contended_dyn(&self, key: &LockKey) -> bool {
        self.is_contended(key)
    }

    fn try_acquire_dyn(self: Arc<Self>, request: AcquireRequest) -> BoxFuture<'static, Result<Attempt>> {
        Box::pin(async move { self.try_acquire(&request).await })
    }

    fn try_acquire_all_dyn(self: Arc<Self>, requests: Vec<AcquireRequest>) -> BoxFuture<'static, Result<AttemptAll>> {
        Box::pin(async move { self.try_acquire_all(&requests).await })
    }

    fn requeue_dyn(self: Arc<Self>, release: Release, request: AcquireRequest) -> BoxFuture<'static, Result<Attempt>> {
        Box::pin(async move { self.requeue(&release, &request).await })
    }

    fn renew_dyn(self: Arc<Self>, one_lane: Vec<Claim>) -> BoxFuture<'static, Vec<Result<Renewal>>> {
        Box::pin(async move { self.renew(&one_lane).await })
    }

    fn release_dyn(self: Arc<Self>, release: Release) -> BoxFuture<'static, Result<Freed>> {
        Box::pin(async move { self.release(&release).await })
    }

    fn withdraw_dyn(self: Arc<Self>, claim: Claim) -> BoxFuture<'static, Result<Freed>> {
        Box::pin(async move { self.withdraw(&claim).await })
    }

    fn downgrade_dyn(self: Arc<Self>, claim: Claim, token: FencingToken) -> BoxFuture<'static, Result<Renewal>> {
        Box::pin(async move { self.downgrade(&claim, token).await })
    }

    fn holders_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Vec<Holder>>> {
        Box::pin(async move { self.holders(&key).await })
    }

    fn holder_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Option<Holder>>> {
        Box::pin(async move { self.holder(&key).await })
    }

    fn set_blocked_dyn(self: Arc<Self>, key: LockKey, blocked: Option<Blocked>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.set_blocked(&key, blocked.as_ref()).await })
    }

    fn blocked_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Option<Blocked>>> {
        Box::pin(async move { self.blocked(&key).await })
    }

    fn last_run_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, Result<Option<JobRecord>>> {
        Box::pin(async move { self.last_run(&key).await })
    }

    fn sync_dyn(self: Arc<Self>, key: LockKey) -> BoxFuture<'static, SyncReport> {
        Box::pin(async move { self.sync(&key).await })
    }

    fn vote_dyn(self: Arc<Self>, request: AcquireRequest) -> BoxFuture<'static, Result<Vote>> {
        Box::pin(async move { self.vote(&request).await })
    }

    fn remember_dyn(
        self: Arc<Self>,
        list: Option<MemberList>,
        keep_for: Duration,
    ) -> BoxFuture<'static, Result<Vec<MemberList>>> {
        Box::pin(async move { self.remember(list.as_ref(), keep_for).await })
    }

    fn vouch_dyn(self: Arc<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.vouch().await })
    }
}
