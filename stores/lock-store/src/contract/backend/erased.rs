//! Stores without their type, so that handles need no type parameter.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::{
    AcquireRequest, AnyBackend, Attempt, AttemptAll, Blocked, BlockedNotes, Capabilities, Claim, Doctor, DoneMark,
    DoneMarks, Finding, FleetHolder, Freed, Inbox, Inspector, JobRecord, JobRecords, JobVersion, LockBackend,
    LockEntry, MemberList, QuorumMember, Release, Renewal, Revocation, ScanPage, ScanPosition, SharedClaims,
    SyncReport, Vote, Waiter,
};
use crate::types::error::{LockError, Result};
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::options::Durability;
use crate::types::owner::Holder;
use crate::types::system::clock::Clock;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes [`DynBackend`] from a list of operations, with its implementation for every store.
///
/// The twin of an operation owns its arguments and is boxed, because its future may outlive the caller.
/// `name: Owned => lent` says how the store borrows them. The twin of an operation of a part asks that part, or
/// [`Absent`] if the store lacks it.
macro_rules! twin {
    (
        facts { $( fn $fact:ident(&self $(, $given:ident: $kind:ty)*) -> $says:ty; )* }
        operations { $( async fn $ask:ident($( $arg:ident: $own:ty => $lent:expr ),*) -> $answer:ty; )* }
        $( $part:ident: $Part:ident {
            $( fn $known:ident() -> $known_as:ty; )*
            $( async fn $more:ident($( $of:ident: $owned:ty => $borrowed:expr ),*) -> $found:ty; )*
        } )*
    ) => {
        /// Any store. Its operations have the names of [`LockBackend`] and of its parts.
        pub trait DynBackend: Debug + Send + Sync {
            $( fn $fact(&self $(, $given: $kind)*) -> $says; )*
            $( fn $ask(self: Arc<Self> $(, $arg: $own)*) -> BoxFuture<'static, $answer>; )*
            $(
                $( fn $known(&self) -> $known_as; )*
                $( fn $more(self: Arc<Self> $(, $of: $owned)*) -> BoxFuture<'static, $found>; )*
            )*
        }

        impl<B: LockBackend> DynBackend for B {
            $( fn $fact(&self $(, $given: $kind)*) -> $says {
                LockBackend::$fact(self $(, $given)*)
            } )*
            $( fn $ask(self: Arc<Self> $(, $arg: $own)*) -> BoxFuture<'static, $answer> {
                Box::pin(async move { LockBackend::$ask(&*self $(, $lent)*).await })
            } )*
            $(
                $( fn $known(&self) -> $known_as {
                    match self.$part() {
                        Some(part) => $Part::$known(part),
                        None => $Part::$known(&Absent(self)),
                    }
                } )*
                $( fn $more(self: Arc<Self> $(, $of: $owned)*) -> BoxFuture<'static, $found> {
                    Box::pin(async move {
                        match self.$part() {
                            Some(part) => $Part::$more(part $(, $borrowed)*).await,
                            // Boxed, so that the futures of stores with the part stay small.
                            None => Box::pin($Part::$more(&Absent(&*self) $(, $borrowed)*)).await,
                        }
                    })
                } )*
            )*
        }
    };
}

twin! {
    facts {
        fn capabilities(&self) -> Capabilities;
        fn attach(&self, clock: &Clock) -> ();
        fn lane(&self, key: &LockKey) -> u16;
        fn node(&self, lane: u16) -> &str;
        fn durability(&self) -> Durability;
        fn failovers(&self, lane: u16) -> u64;
        fn has_failed_over(&self, lane: u16, before: u64) -> bool;
        fn is_contended(&self, key: &LockKey) -> bool;
    }
    operations {
        async fn drive(inbox: Inbox => inbox) -> LockError;
        async fn ping() -> Result<()>;
        async fn try_acquire(request: AcquireRequest => &request) -> Result<Attempt>;
        async fn try_acquire_all(requests: Vec<AcquireRequest> => &requests) -> Result<AttemptAll>;
        async fn requeue(release: Release => &release, request: AcquireRequest => &request) -> Result<Attempt>;
        async fn renew(one_lane: Vec<Claim> => &one_lane) -> Vec<Result<Renewal>>;
        async fn release(release: Release => &release) -> Result<Freed>;
        async fn withdraw(claim: Claim => &claim) -> Result<Freed>;
        async fn holder(key: LockKey => &key) -> Result<Option<Holder>>;
        async fn sync(key: LockKey => &key) -> SyncReport;
        async fn settled() -> ();
    }
    shared: SharedClaims {
        async fn downgrade(claim: Claim => &claim, token: FencingToken => token) -> Result<Renewal>;
        async fn holders(key: LockKey => &key) -> Result<Vec<Holder>>;
    }
    member: QuorumMember {
        fn history() -> Option<Arc<str>>;
        async fn vote(request: AcquireRequest => &request) -> Result<Vote>;
        async fn remember(list: Option<MemberList> => list.as_ref(), keep_for: Duration => keep_for) -> Result<Vec<MemberList>>;
        async fn vouch() -> Result<()>;
    }
    blocking: BlockedNotes {
        async fn set_blocked(key: LockKey => &key, blocked: Option<Blocked> => blocked.as_ref()) -> Result<()>;
        async fn blocked(key: LockKey => &key) -> Result<Option<Blocked>>;
    }
    jobs: JobRecords {
        async fn last_run(key: LockKey => &key) -> Result<Option<JobRecord>>;
    }
    marks: DoneMarks {
        async fn done(key: LockKey => &key, version: JobVersion => &version) -> Result<Option<DoneMark>>;
        async fn mark_done(claim: Claim => &claim, version: JobVersion => &version, keep: Option<Duration> => keep) -> Result<bool>;
        async fn forget_done(key: LockKey => &key, version: JobVersion => &version) -> Result<bool>;
    }
    inspector: Inspector {
        async fn scan(prefix: String => &prefix, limit: u32 => limit, after: Option<ScanPosition> => after.as_ref()) -> Result<ScanPage>;
        async fn scan_with_foreign(
            prefix: String => &prefix, foreign: Arc<[String]> => &foreign, limit: u32 => limit,
            after: Option<ScanPosition> => after.as_ref()
        ) -> Result<ScanPage>;
        async fn entry(key: LockKey => &key) -> Result<Option<LockEntry>>;
        async fn waiters(key: LockKey => &key) -> Result<Vec<Waiter>>;
        async fn revoke(key: LockKey => &key, revocation: Revocation => &revocation) -> Result<Freed>;
        async fn sharers(key: LockKey => &key) -> Result<Vec<FleetHolder>>;
        async fn job(key: LockKey => &key) -> Result<Option<JobRecord>>;
        async fn members(key: LockKey => &key) -> Result<Option<SyncReport<Option<LockEntry>>>>;
        async fn keeper(key: LockKey => &key) -> Result<Option<AnyBackend>>;
    }
    doctor: Doctor {
        async fn examine() -> Vec<Finding>;
    }
}

/// A store that lacks a part. It answers in place of the part.
pub(super) struct Absent<'a, B>(&'a B);

impl<B: LockBackend> SharedClaims for Absent<'_, B> {
    async fn downgrade(&self, _: &Claim, _: FencingToken) -> Result<Renewal> {
        Err(LockError::misconfigured("this store knows only exclusive locks, so nothing can be downgraded"))
    }

    async fn holders(&self, key: &LockKey) -> Result<Vec<Holder>> {
        Ok(self.0.holder(key).await?.into_iter().collect())
    }
}

impl<B: LockBackend> QuorumMember for Absent<'_, B> {
    /// A renewal tells first whether the claim already had the lock.
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        let renewed = self.0.renew(std::slice::from_ref(&request.claim)).await;
        let kept = renewed.first() == Some(&Ok(Renewal::Renewed));
        Ok(match self.0.try_acquire(request).await? {
            // A quorum counts the whole ttl, so a vote that ends before is given back.
            Attempt::Granted { lease: Some(lease), .. } if lease < request.claim.ttl => {
                self.0.withdraw(&request.claim).await?;
                return Err(LockError::misconfigured(format!(
                    "a store of the kind {} keeps a lock for {lease:?} at a time; use a shorter ttl in the quorum",
                    self.0.kind(),
                )));
            }
            Attempt::Granted { token, .. } => Vote::Granted { token, kept, history: None, time: None },
            Attempt::Held { holder } | Attempt::Queued { holder } | Attempt::Asleep { holder, .. } => {
                Vote::Held { holder, history: None }
            }
            Attempt::Contended => Vote::Held { holder: Holder::unseen(), history: None },
            // A shared grant would be counted as an exclusive one.
            Attempt::Shared { .. } => return Err(request.claim.mode.unknown_to_store()),
        })
    }
}

impl<B: LockBackend> BlockedNotes for Absent<'_, B> {
    async fn set_blocked(&self, _: &LockKey, _: Option<&Blocked>) -> Result<()> {
        Ok(())
    }

    async fn blocked(&self, _: &LockKey) -> Result<Option<Blocked>> {
        Ok(None)
    }
}

impl<B: LockBackend> JobRecords for Absent<'_, B> {
    async fn last_run(&self, _: &LockKey) -> Result<Option<JobRecord>> {
        Ok(None)
    }
}

/// An unknown mark must not count as *not done*.
impl<B: LockBackend> DoneMarks for Absent<'_, B> {
    async fn done(&self, _: &LockKey, _: &JobVersion) -> Result<Option<DoneMark>> {
        Err(self.keeps_no_marks())
    }

    async fn mark_done(&self, _: &Claim, _: &JobVersion, _: Option<Duration>) -> Result<bool> {
        Err(self.keeps_no_marks())
    }

    async fn forget_done(&self, _: &LockKey, _: &JobVersion) -> Result<bool> {
        Err(self.keeps_no_marks())
    }
}

impl<B: LockBackend> Inspector for Absent<'_, B> {
    async fn scan(&self, _: &str, _: u32, _: Option<&ScanPosition>) -> Result<ScanPage> {
        Err(self.tells_nothing())
    }

    async fn entry(&self, _: &LockKey) -> Result<Option<LockEntry>> {
        Err(self.tells_nothing())
    }

    async fn waiters(&self, _: &LockKey) -> Result<Vec<Waiter>> {
        Err(self.tells_nothing())
    }

    async fn revoke(&self, _: &LockKey, _: &Revocation) -> Result<Freed> {
        Err(self.tells_nothing())
    }
}

/// A store that cannot be examined must not count as *healthy*.
impl<B: LockBackend> Doctor for Absent<'_, B> {
    async fn examine(&self) -> Vec<Finding> {
        let says = format!("a store of the kind {} does not examine its servers", self.0.kind());
        vec![Finding::unknown("store", says)]
    }
}

impl<B: LockBackend> Absent<'_, B> {
    fn keeps_no_marks(&self) -> LockError {
        LockError::misconfigured(format!(
            "a store of the kind {} does not keep marks of what was done for which version yet; use another store",
            self.0.kind(),
        ))
    }

    /// An unknown holder must not count as *free*.
    fn tells_nothing(&self) -> LockError {
        LockError::misconfigured(format!("a store of the kind {} does not tell who holds its locks", self.0.kind()))
    }
}
