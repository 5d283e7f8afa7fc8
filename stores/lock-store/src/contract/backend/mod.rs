//! The contract between the machinery and a store.
//!
//! A store handles keys, owners, leases and tokens. Waiting, renewal schedules and guards belong to the machinery. The
//! machinery does not depend on any particular store.

mod answers;
mod any;
mod driven;
mod erased;
mod inbox;
mod parts;
mod requests;
mod scheme;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use crate::types::error::{LockError, Result};
use crate::types::key::LockKey;
use crate::types::options::Durability;
use crate::types::owner::Holder;
use crate::types::system::clock::Clock;

pub use answers::{Attempt, AttemptAll, Freed, Renewal};
pub use any::AnyBackend;
pub use driven::drive_again;
use erased::Absent;
pub use erased::{BoxFuture, DynBackend};
pub use inbox::{Inbox, Message};
pub use parts::blocked::{Blocked, BlockedNotes};
pub use parts::doctor::{Doctor, Finding, FindingGrade};
pub use parts::done::{DoneMark, DoneMarks, JobVersion, MAX_VERSION_BYTES};
pub use parts::inspector::{
    EntryState, FleetHolder, Inspector, LockEntry, Revocation, RevokeFrom, ScanPage, ScanPosition, Waiter,
};
pub use parts::job::{JobRecord, JobRecords, JobRun};
pub use parts::shared::SharedClaims;
pub use parts::vote::{MemberList, NodeReport, QuorumMember, SyncReport, Vote};
pub use requests::{AcquireRequest, Claim, Grant, Release, Ticket};
pub use scheme::opened;
#[doc(hidden)]
pub use scheme::{SCHEMES, Scheme};

/// A store of locks.
///
/// Implementations write plain `async fn`s. Every method must be safe to drop at any await point and safe to repeat
/// with the same claim. The machinery retries, so the store's own client must not retry.
///
/// An `Err` always means that the outcome is *unknown*. If it was built with [`LockError::not_executed`], it means
/// *certainly not done*. It never means that a lock is lost.
///
/// A store that takes, renews and frees locks is complete. Further abilities come in parts. Each part is a trait that
/// the store returns from here if it has it: [`SharedClaims`], [`QuorumMember`], [`BlockedNotes`], [`JobRecords`],
/// [`DoneMarks`], [`Inspector`], [`Doctor`].
///
#[doc = include_str!("example.md")]
#[doc = include_str!("sessions.md")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store of locks",
    label = "this is not a `LockBackend`",
    note = "for a URL: `LockManager::connect(url).await?`, or `LockManager::builder(RedisStore::new(url)?)` to set options"
)]
pub trait LockBackend: Debug + Send + Sync + Sized + 'static {
    /// Returns the kind of store, for example `"redis"`.
    fn kind(&self) -> &'static str;

    /// Returns the abilities of the store.
    fn capabilities(&self) -> Capabilities;

    /// Tells the store which clock its manager uses. Stores with a clock of their own ignore it.
    fn attach(&self, clock: &Clock) {
        let _ = clock;
    }

    /// Opens and keeps the connections for background work, until it fails.
    ///
    /// Runs on the keeper. When it returns, the keeper runs it again after a pause. `inbox` receives the messages that
    /// the store sends by itself.
    fn drive(&self, inbox: Inbox) -> impl Future<Output = LockError> + Send;

    /// Checks that the store answers and accepts the credentials.
    fn ping(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Returns which of the store's independent shards serves this key. This number is the key's lane.
    ///
    /// Renewals of different lanes never share a batch. A shard that is slow or down therefore delays only its own
    /// keys.
    fn lane(&self, key: &LockKey) -> u16 {
        let _ = key;
        0
    }

    /// Returns the name of the node behind a lane, without credentials. It is a metric label.
    fn node(&self, lane: u16) -> &str {
        let _ = lane;
        self.kind()
    }

    /// Returns where locks must have arrived before they count, if their requests do not say.
    fn durability(&self) -> Durability {
        Durability::Master
    }

    /// Returns how often another server took over the node behind a lane, or the node was restarted. If a lost lock was
    /// last confirmed before that, the node has lost it: [`LossReason::Failover`](crate::LossReason::Failover).
    ///
    /// The count must rise before any answer of the new history is given. Otherwise a loss would be blamed on another
    /// client.
    fn failovers(&self, lane: u16) -> u64 {
        let _ = lane;
        0
    }

    /// Returns whether a failover of the node behind a lane explains the loss of a lock. `before` is the count of
    /// [`failovers`](Self::failovers) when the lock was last confirmed.
    fn has_failed_over(&self, lane: u16, before: u64) -> bool {
        self.failovers(lane) != before
    }

    /// Takes the lock if it is free and no reachable waiter is queued for it, or if this claim already has it.
    /// Otherwise queues the claim, if the request has a ticket.
    ///
    /// For a claim that shares, a lock also counts as free if other claims share it and the units fit under its limit
    /// ([`Mode`](crate::Mode)). Only stores with [`SharedClaims`] are asked for that, and answer [`Attempt::Shared`]. A
    /// claim never passes a waiter that can be reached, even if that waiter does not fit.
    ///
    /// A [tentative](AcquireRequest::tentative) request has no ticket, and is followed by one with a ticket. Some
    /// stores need two steps to find that a lock is taken and which claim has it. They answer [`Attempt::Contended`]
    /// after the first step.
    ///
    /// A repeat with the same claim has one of two results. Either it answers `Granted` again, with a new and greater
    /// token, and extends the lease to the full ttl. Or it confirms the place in the queue.
    ///
    /// A grant owns [`FencingToken::PER_GRANT`](crate::FencingToken::PER_GRANT) consecutive tokens, beginning with the
    /// token that is returned. The tokens of the key's next grant are all greater.
    fn try_acquire(&self, request: &AcquireRequest) -> impl Future<Output = Result<Attempt>> + Send;

    /// Returns whether a lock is probably taken, as far as this process knows. A caller that may wait then asks with a
    /// ticket at once.
    fn is_contended(&self, key: &LockKey) -> bool {
        let _ = key;
        false
    }

    /// Takes the locks of several claims in one step, or none of them. The claims are never queued.
    ///
    /// Each lock counts as free under the rules of [`try_acquire`](Self::try_acquire). The claims are fresh and their
    /// keys are distinct. The requests agree in everything but the claim. A store that cannot do this, or not for these
    /// keys, answers [`AttemptAll::Apart`]. The machinery then asks for the locks one after the other.
    fn try_acquire_all(&self, requests: &[AcquireRequest]) -> impl Future<Output = Result<AttemptAll>> + Send {
        let _ = requests;
        async { Ok(AttemptAll::Apart) }
    }

    /// Ends one claim and makes another for the same key, in one call. The new claim queues behind all others.
    ///
    /// Idempotent in both claims. The new claim counts as arrived before the lock moves on. It is therefore granted at
    /// once if no other claim waits.
    fn requeue(&self, release: &Release, request: &AcquireRequest) -> impl Future<Output = Result<Attempt>> + Send {
        async {
            self.release(release).await.map_err(LockError::before_the_acquire)?;
            self.try_acquire(request).await
        }
    }

    /// Extends the leases of claims of one lane. Answers come in the order of the claims.
    ///
    /// Never re-creates a key and never shortens a lease.
    fn renew(&self, one_lane: &[Claim]) -> impl Future<Output = Vec<Result<Renewal>>> + Send;

    /// Frees the lock if this claim has it, and leaves the queue. The freed lock passes to the first reachable waiter
    /// in the queue. If clients of other libraries also lock the store's keys, the store may first leave the lock free
    /// for a moment. It then makes that waiter ask again.
    ///
    /// Must work while the store refuses writes because it is out of memory.
    ///
    /// If a [run](Release::run) of a job ends with the claim, and the claim has the lock, a store with [`JobRecords`]
    /// records the run.
    fn release(&self, release: &Release) -> impl Future<Output = Result<Freed>> + Send;

    /// Leaves the queue, and frees the lock if it was granted in the meantime.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<Freed>> + Send;

    /// Returns the current holder of the key. If several claims share it, returns the one that came first.
    fn holder(&self, key: &LockKey) -> impl Future<Output = Result<Option<Holder>>> + Send;

    /// Returns the answer of each node about a key. In a store of one node, this is the holder.
    fn sync(&self, key: &LockKey) -> impl Future<Output = SyncReport> + Send {
        async { SyncReport::new(vec![NodeReport::new(self.node(self.lane(key)), self.holder(key).await)], 1) }
    }

    /// Waits until the work that the store still does for answered calls is done, for about a second at most. A shutdown awaits this,
    /// because its process may end afterwards. For example, a quorum still tells late members that a claim has ended.
    fn settled(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns the part that lets claims share a lock, if the store has it.
    fn shared(&self) -> Option<&impl SharedClaims> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that makes the store a better member of a `Quorum`, if the store has it.
    fn member(&self) -> Option<&impl QuorumMember> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that keeps which lock each holder waits for, if the store has it.
    fn blocking(&self) -> Option<&impl BlockedNotes> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that remembers the runs of jobs, if the store has it.
    fn jobs(&self) -> Option<&impl JobRecords> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that keeps marks of finished work, if the store has it.
    fn marks(&self) -> Option<&impl DoneMarks> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that lists the locks and holders of the whole fleet, if the store has it.
    fn inspector(&self) -> Option<&impl Inspector> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that examines the servers behind the store, if the store has it.
    fn doctor(&self) -> Option<&impl Doctor> {
        None::<&Absent<'_, Self>>
    }
}

/// Says in an implementation of [`LockBackend`] that the store itself is these optional parts, for example
/// `lock_store::has_parts! { jobs: JobRecords }`.
#[macro_export]
macro_rules! has_parts {
    ($($part:ident: $Part:path),+) => {
        $(fn $part(&self) -> Option<&impl $Part> {
            Some(self)
        })+
    };
}

/// The abilities of a store, as data.
///
/// ```
/// use lock_store::Capabilities;
///
/// // A store that other processes share, and that grants to its waiters in order.
/// let known = Capabilities::polled().with_queue();
/// assert!(known.queue && known.shared && !known.push_loss);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store queues waiters and grants in order of arrival. Otherwise waiters poll.
    pub queue: bool,
    /// The store tells waiters when to ask again, in no order. A store with a queue does that too.
    pub wakes: bool,
    /// The store reports when another client changes a renewed lease, by [`Inbox::suspect`]. Leases are then renewed first
    /// soon after they are granted. May turn false while the store is in use, if a server refuses to report.
    pub push_loss: bool,
    /// The lock survives a restart of this process.
    pub shared: bool,
    /// Claims may share a lock: the store has [`SharedClaims`]. Otherwise every claim is exclusive.
    pub modes: bool,
    /// Claims are answered only after they have arrived where their [`Durability`] says.
    pub durability: bool,
    /// The shortest time after which the store ends a claim that nobody renews. A shorter ttl is rounded up.
    pub min_lease: Duration,
    /// The store ends leases at multiples of this time, so one ends up to a step late.
    pub lease_step: Duration,
    /// Locks [end with the session](crate::LockBackend#locks-that-end-with-a-session) of the process that took them.
    pub sessions: bool,
}

impl Capabilities {
    /// Describes a store whose waiters poll.
    #[must_use]
    pub fn polled() -> Self {
        Self { shared: true, ..Self::default() }
    }

    /// Adds that the store queues waiters and grants to them in order.
    #[must_use]
    pub const fn with_queue(mut self) -> Self {
        self.queue = true;
        self
    }
}
