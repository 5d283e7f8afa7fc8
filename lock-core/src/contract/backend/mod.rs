//! The contract between the machinery and a store.
//!
//! A store knows keys, owners, leases and tokens. It knows nothing about waiting, renewal schedules
//! or guards: those belong to the machinery, which in turn knows nothing about any particular
//! store.

mod answers;
mod any;
mod attempt_all;
mod blocked;
mod driven;
mod erased;
mod inbox;
mod job;
mod requests;
mod vote;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::types::error::{LockError, Result};
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::options::Durability;
use crate::types::owner::Holder;
use crate::types::system::clock::Clock;

pub use answers::{Attempt, Freed, Renewal};
pub use any::AnyBackend;
pub use attempt_all::AttemptAll;
pub use blocked::Blocked;
pub(crate) use driven::drive_again;
pub(crate) use erased::{BoxFuture, DynBackend};
pub use inbox::Inbox;
pub(crate) use inbox::Message;
pub use job::{JobRecord, JobRun};
pub use requests::{AcquireRequest, Claim, Grant, Release, Ticket};
pub use vote::{MemberList, NodeReport, SyncReport, Vote};

/// A store of locks.
///
/// Implementations write plain `async fn`s. Every method must be safe to drop at any await point
/// and safe to repeat with the same claim: the machinery retries, so the store's own client must
/// not.
///
/// An `Err` always means *unknown* (or, built with [`LockError::not_executed`], *certainly not
/// done*). It never means that a lock is lost.
///
#[doc = include_str!("example.md")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store of locks",
    label = "this is no `LockBackend`",
    note = "for a URL: `LockManager::connect(url).await?`, or `LockManager::builder(RedisStore::new(url)?)` to set options"
)]
pub trait LockBackend: Debug + Send + Sync + 'static {
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

    /// Returns which of the store's independent parts serves this key.
    ///
    /// Renewals of different lanes never share a batch, so a part that is slow or down delays only
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

    /// Returns a name of the data that this store keeps, once it is known, which no other store but a copy has. A
    /// quorum refuses two members of one name: a single server would have two votes.
    fn history(&self) -> Option<Arc<str>> {
        None
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
    /// ([`Mode`](crate::Mode)); only stores with [`Capabilities::modes`] are asked for that, and answer
    /// [`Attempt::Shared`]. Nobody passes a waiter that can be reached, whether it would fit or not.
    ///
    /// A [tentative](AcquireRequest::tentative) request comes without a ticket, before one with: a store that finds out
    /// in two steps that a lock is taken, and by whom, answers [`Attempt::Contended`] after the first.
    ///
    /// A repeat with the same claim either answers `Granted` again, with a new and greater token, and
    /// raises the lease to the full ttl, or confirms the place in the queue.
    ///
    /// A grant owns [`FencingToken::PER_GRANT`] consecutive numbers, of which its token is the first. The
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
    /// If a [run](Release::run) of a job ends with the claim, and the claim has the lock, the store notes that, for
    /// [`last_run`](Self::last_run).
    fn release(&self, release: &Release) -> impl Future<Output = Result<Freed>> + Send;

    /// Leaves the queue, and frees the lock if it was granted meanwhile.
    fn withdraw(&self, claim: &Claim) -> impl Future<Output = Result<Freed>> + Send;

    /// Turns an exclusive claim that holds the lock into one that shares it, without a moment in which nobody
    /// holds it, and lets in those at the head of the queue that fit beside it.
    ///
    /// `claim` is as it will be: the owner of the exclusive claim, with the mode that it takes on. `token` is the
    /// last that was given under it, and becomes that of the phase. Idempotent. Only stores with
    /// [`Capabilities::modes`] are asked. Renewals and releases of the shared claim may come before, and then serve
    /// the exclusive one.
    fn downgrade(&self, claim: &Claim, token: FencingToken) -> impl Future<Output = Result<Renewal>> + Send {
        let _ = (claim, token);
        async { Err(LockError::misconfigured("this store knows only exclusive locks, so nothing can be downgraded")) }
    }

    /// Returns who holds the key now. Of several who share it, the one that came first.
    fn holder(&self, key: &LockKey) -> impl Future<Output = Result<Option<Holder>>> + Send;

    /// Returns everybody who holds the key now.
    fn holders(&self, key: &LockKey) -> impl Future<Output = Result<Vec<Holder>>> + Send {
        async { Ok(self.holder(key).await?.into_iter().collect()) }
    }

    /// Keeps beside a lock what its holder waits for, for [`Blocked::KEPT`]; `None` removes it.
    ///
    /// For finding deadlocks across processes. A store that does not keep it finds none.
    fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> impl Future<Output = Result<()>> + Send {
        let _ = (key, blocked);
        async { Ok(()) }
    }

    /// Returns what the holder of a lock waits for, if it has said so lately.
    fn blocked(&self, key: &LockKey) -> impl Future<Output = Result<Option<Blocked>>> + Send {
        let _ = key;
        async { Ok(None) }
    }

    /// Returns what is remembered of the job whose lock this is. A store that does not keep it says nothing.
    fn last_run(&self, key: &LockKey) -> impl Future<Output = Result<Option<JobRecord>>> + Send {
        let _ = key;
        async { Ok(None) }
    }

    /// Returns what each node says of a key. A store of one node is asked for the holder.
    fn sync(&self, key: &LockKey) -> impl Future<Output = SyncReport> + Send {
        async { SyncReport::new(vec![NodeReport::new(self.node(self.lane(key)), self.holder(key).await)], 1) }
    }

    /// Takes the lock as a member of a [`Quorum`](crate::Quorum), or confirms that the claim has it. Nobody queues.
    ///
    /// As [`try_acquire`](Self::try_acquire), with the least token above the floor that the store can give:
    /// members that are given the same floor then grant the same token. A store that can lose its data says for
    /// how long it has kept them, and whether the claim had the lock already, read in the same step. By default it is
    /// renewed first, which tells that too.
    fn vote(&self, request: &AcquireRequest) -> impl Future<Output = Result<Vote>> + Send {
        async {
            let renewed = self.renew(std::slice::from_ref(&request.claim)).await;
            let kept = renewed.first() == Some(&Ok(Renewal::Renewed));
            Ok(match self.try_acquire(request).await? {
                Attempt::Granted { token, .. } => Vote::Granted { token, kept, history: None, time: None },
                Attempt::Held { holder } | Attempt::Queued { holder } => Vote::Held { holder },
                Attempt::Contended => Vote::Held { holder: Holder::foreign(None) },
                // It would count as somebody's alone.
                Attempt::Shared { .. } => return Err(request.claim.mode.unknown_to_store()),
            })
        }
    }

    /// Remembers for a while that a quorum with these members is in use, if a list is given. Returns the lists that
    /// are remembered.
    fn remember(
        &self,
        list: Option<&MemberList>,
        keep_for: Duration,
    ) -> impl Future<Output = Result<Vec<MemberList>>> + Send {
        let _ = (list, keep_for);
        async { Ok(Vec::new()) }
    }

    /// Declares that the data of a store which is a member of a quorum have no gap, whatever happened before.
    fn vouch(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
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
    /// Claims may share a lock. Otherwise every claim is exclusive.
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
