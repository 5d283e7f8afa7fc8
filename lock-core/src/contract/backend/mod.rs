//! The contract between the machinery and a store.
//!
//! A store knows keys, owners, leases and tokens. It knows nothing about waiting, renewal schedules
//! or guards: those belong to the machinery, which in turn knows nothing about any particular
//! store.

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

use crate::types::error::{LockError, Result};
use crate::types::key::LockKey;
use crate::types::options::Durability;
use crate::types::owner::Holder;
use crate::types::system::clock::Clock;

pub use answers::{Attempt, AttemptAll, Freed, Renewal};
pub use any::AnyBackend;
pub(crate) use driven::drive_again;
use erased::Absent;
pub(crate) use erased::{BoxFuture, DynBackend};
pub use inbox::Inbox;
pub(crate) use inbox::Message;
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
pub(crate) use scheme::opened;
#[doc(hidden)]
pub use scheme::{SCHEMES, Scheme};

/// A store of locks.
///
/// Implementations write plain `async fn`s. Every method must be safe to drop at any await point
/// and safe to repeat with the same claim: the machinery retries, so the store's own client must
/// not.
///
/// An `Err` always means *unknown* (or, built with [`LockError::not_executed`], *certainly not
/// done*). It never means that a lock is lost.
///
/// A store that takes, renews and frees locks is complete. What else it may do comes in parts, each a trait of its own
/// that the store returns from here if it has it: [`SharedClaims`], [`QuorumMember`], [`BlockedNotes`], [`JobRecords`],
/// [`DoneMarks`], [`Inspector`], [`Doctor`].
///
#[doc = include_str!("example.md")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store of locks",
    label = "this is no `LockBackend`",
    note = "for a URL: `LockManager::connect(url).await?`, or `LockManager::builder(RedisStore::new(url)?)` to set options"
)]
pub trait LockBackend: Debug + Send + Sync + Sized + 'static {
    /// Returns the store's name, as in `"redis"`.
    fn kind(&self) -> &'static str;

    /// Returns what the store can do.
    fn capabilities(&self) -> Capabilities;

    /// Tells the store which clock its manager runs on. Stores with a clock of their own ignore it.
    fn attach(&self, clock: &Clock) {
        let _ = clock;
    }

    /// Opens and keeps the connections for background work, until it fails.
    ///
    /// Runs on the keeper, which runs it again after a pause when it returns. `inbox` receives what
    /// the store reports by itself.
    fn drive(&self, inbox: Inbox) -> impl Future<Output = LockError> + Send;

    /// Checks that the store answers and accepts our credentials.
    fn ping(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Returns which of the store's independent shards serves this key: its lane.
    ///
    /// Renewals of different lanes never share a batch, so a shard that is slow or down delays only
    /// its own keys.
    fn lane(&self, key: &LockKey) -> u16 {
        let _ = key;
        0
    }

    /// Returns the name of the node behind a lane, without credentials: a metric label.
    fn node(&self, lane: u16) -> &str {
        let _ = lane;
        self.kind()
    }

    /// Returns where locks must have arrived before they count, if their requests do not say.
    fn durability(&self) -> Durability {
        Durability::Master
    }

    /// Returns how often another server took over the node behind a lane, or it was started again. A lock that is lost
    /// and was last confirmed before that was lost by the node: [`LossReason::Failover`](crate::LossReason::Failover).
    ///
    /// Counted before any answer of the new history is given.
    fn failovers(&self, lane: u16) -> u64 {
        let _ = lane;
        0
    }

    /// Returns whether failovers of the node behind a lane explain the loss of a lock that was last confirmed when
    /// [`failovers`](Self::failovers) was `before`.
    fn has_failed_over(&self, lane: u16, before: u64) -> bool {
        self.failovers(lane) != before
    }

    /// Takes the lock if it is free and no reachable waiter is queued for it, or if it already
    /// belongs to this claim. Otherwise, if the request has a ticket, queues the claim.
    ///
    /// For a claim that shares, a lock is also free if others share it and its units fit under its limit
    /// ([`Mode`](crate::Mode)); only stores with [`SharedClaims`] are asked for that, and answer
    /// [`Attempt::Shared`]. Nobody passes a waiter that can be reached, whether it would fit or not.
    ///
    /// A [tentative](AcquireRequest::tentative) request comes without a ticket, before one with: a store that finds out
    /// in two steps that a lock is taken, and by whom, answers [`Attempt::Contended`] after the first.
    ///
    /// A repeat with the same claim either answers `Granted` again, with a new and greater token, and
    /// raises the lease to the full ttl, or confirms the place in the queue.
    ///
    /// A grant owns [`FencingToken::PER_GRANT`](crate::FencingToken::PER_GRANT) consecutive numbers, of which its token is the first. The
    /// numbers of the key's next grant are all greater.
    fn try_acquire(&self, request: &AcquireRequest) -> impl Future<Output = Result<Attempt>> + Send;

    /// Returns whether a lock is probably taken, as far as is known here: a caller that would wait then asks with a
    /// ticket at once.
    fn is_contended(&self, key: &LockKey) -> bool {
        let _ = key;
        false
    }

    /// Takes the locks of several claims in one step, or none of them. Nobody queues.
    ///
    /// Each lock counts as free under the rules of [`try_acquire`](Self::try_acquire). The claims are
    /// fresh and their keys distinct; the requests agree in everything but the claim. A store that
    /// cannot do this, or not for these keys, answers [`AttemptAll::Apart`], and the machinery then
    /// asks for the locks one after the other.
    fn try_acquire_all(&self, requests: &[AcquireRequest]) -> impl Future<Output = Result<AttemptAll>> + Send {
        let _ = requests;
        async { Ok(AttemptAll::Apart) }
    }

    /// Ends one claim and makes another for the same key, which queues behind all others, in one call.
    ///
    /// Idempotent in both claims. The new one counts as arrived before the lock moves on, so it is
    /// granted at once if nobody else waits.
    fn requeue(&self, release: &Release, request: &AcquireRequest) -> impl Future<Output = Result<Attempt>> + Send {
        async {
            self.release(release).await.map_err(LockError::before_the_acquire)?;
            self.try_acquire(request).await
        }
    }

    /// Raises the leases of claims of one lane. Answers come in the order of the claims.
    ///
    /// Never re-creates a key and never shortens a lease.
    fn renew(&self, one_lane: &[Claim]) -> impl Future<Output = Vec<Result<Renewal>>> + Send;

    /// Frees the lock if it belongs to this claim, and leaves the queue. The freed lock passes to
    /// the first waiter in the queue that can be reached. A store whose keys clients of other libraries lock too
    /// may first leave it free for a moment, and have that waiter ask again.
    ///
    /// Must work when the store refuses writes because it is out of memory.
    ///
    /// If a [run](Release::run) of a job ends with the claim, and the claim has the lock, a store with [`JobRecords`]
    /// notes that.
    fn release(&self, release: &Release) -> impl Future<Output = Result<Freed>> + Send;

    /// Leaves the queue, and frees the lock if it was granted meanwhile.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<Freed>> + Send;

    /// Returns who holds the key now. Of several who share it, the one that came first.
    fn holder(&self, key: &LockKey) -> impl Future<Output = Result<Option<Holder>>> + Send;

    /// Returns what each node says of a key. A store of one node is asked for the holder.
    fn sync(&self, key: &LockKey) -> impl Future<Output = SyncReport> + Send {
        async { SyncReport::new(vec![NodeReport::new(self.node(self.lane(key)), self.holder(key).await)], 1) }
    }

    /// Waits until what the store still does for calls that it has answered is done, for a second or so at most: members of
    /// a quorum that were late are told that a claim is over. Whoever shuts down awaits it, since its process may end then.
    fn settled(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns the part that lets claims share a lock, if the store has it.
    fn shared(&self) -> Option<&impl SharedClaims> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that makes the store a better member of a [`Quorum`](crate::Quorum), if the store has it.
    fn member(&self) -> Option<&impl QuorumMember> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that keeps what holders wait for, if the store has it.
    fn blocking(&self) -> Option<&impl BlockedNotes> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that remembers the runs of jobs, if the store has it.
    fn jobs(&self) -> Option<&impl JobRecords> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that keeps marks of what is done, if the store has it.
    fn marks(&self) -> Option<&impl DoneMarks> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that tells who holds which lock in the whole fleet, if the store has it.
    fn inspector(&self) -> Option<&impl Inspector> {
        None::<&Absent<'_, Self>>
    }

    /// Returns the part that examines the servers behind the store, if the store has it.
    fn doctor(&self) -> Option<&impl Doctor> {
        None::<&Absent<'_, Self>>
    }
}

/// What a store can do, as data.
///
/// ```
/// use lock_core::Capabilities;
///
/// // A store that other processes share, and that grants to its waiters in order.
/// let capabilities = Capabilities::polled().with_queue();
/// assert!(capabilities.queue && capabilities.shared && !capabilities.push_loss);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Waiters are queued by the store and granted in order of arrival. Otherwise they poll.
    pub queue: bool,
    /// The store reports foreign changes of held keys by itself. May turn false while it is used,
    /// when a server refuses to.
    pub push_loss: bool,
    /// The lock survives a restart of this process.
    pub shared: bool,
    /// Claims may share a lock: the store has [`SharedClaims`]. Otherwise every claim is exclusive.
    pub modes: bool,
    /// Claims are answered only when they have arrived where their [`Durability`] says.
    pub durability: bool,
}

impl Capabilities {
    /// Describes a store that waiters poll.
    #[must_use]
    pub const fn polled() -> Self {
        Self { queue: false, push_loss: false, shared: true, modes: false, durability: false }
    }

    /// Says that the store queues waiters and grants to them in order.
    #[must_use]
    pub const fn with_queue(mut self) -> Self {
        self.queue = true;
        self
    }

    /// Says that the store reports foreign changes of leases that were renewed, by
    /// [`Inbox::suspect`]. Leases are then first renewed soon after they are granted.
    #[must_use]
    pub const fn with_push_loss(mut self) -> Self {
        self.push_loss = true;
        self
    }

    /// Says that claims may share a lock.
    #[must_use]
    pub const fn with_modes(mut self) -> Self {
        self.modes = true;
        self
    }

    /// Says that a grant or a renewal is answered only when it has arrived where the claim's [`Durability`] says.
    #[must_use]
    pub const fn with_durability(mut self) -> Self {
        self.durability = true;
        self
    }

    /// Says that only this process sees the store.
    #[must_use]
    pub const fn in_process(mut self) -> Self {
        self.shared = false;
        self
    }
}
