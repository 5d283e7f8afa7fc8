//! Requests to a store.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::parts::job::JobRun;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::mode::Mode;
use crate::types::options::Durability;
use crate::types::owner::{HolderInfo, OwnerId};

/// One request for one key. It lives from before the first byte is sent until the first release.
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The key.
    pub key: LockKey,
    /// The identity that proves ownership.
    pub owner: OwnerId,
    /// The lease.
    pub ttl: Duration,
    /// The mode: exclusive, or how it shares the key.
    pub mode: Mode,
    /// Where a grant and each renewal must have arrived before it is answered.
    pub durability: Durability,
    /// The token under which it shares its lock, for a renewal. Zero if unknown. A claim may lose its lock and be
    /// granted again by a server that does not know of the loss. It then has another token, and its renewal is answered
    /// [`Lost`](crate::Renewal::Lost).
    pub token: FencingToken,
}

impl Claim {
    /// Makes an exclusive claim with a fresh identity.
    #[must_use]
    pub fn new(key: LockKey, ttl: Duration) -> Self {
        let token = FencingToken::default();
        Self { key, owner: OwnerId::random(), ttl, mode: Mode::Exclusive, durability: Durability::Master, token }
    }

    /// Sets how the claim shares its key.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the token under which the claim shares its lock.
    #[must_use]
    pub fn with_token(mut self, token: FencingToken) -> Self {
        self.token = token;
        self
    }

    /// Sets where a grant and each renewal must have arrived before it is answered.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
}

/// The request of [`LockBackend::try_acquire`](crate::LockBackend::try_acquire).
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The claim.
    pub claim: Claim,
    /// The process and call site of the caller, stored beside the owner for people to read.
    pub info: HolderInfo,
    /// The newest token of the key that the caller knows from elsewhere. The grant's token must exceed it. Zero if
    /// unknown. The store refuses a floor more than an hour ahead of its clock.
    pub floor: FencingToken,
    /// Whether the claim was sent before. It may then already be in the queue, or have the lock.
    pub repeated: bool,
    /// How long the store may take to execute this. After that it must refuse, because the caller may be gone.
    pub execute_within: Duration,
    /// How long a release may have kept the key taken until now, by the `min_hold` of the request. A member of a quorum
    /// that began with empty data within this time does not count.
    pub kept_for: Duration,
    /// How to queue, if the caller waits.
    pub ticket: Option<Ticket>,
    /// Whether the caller would wait, but has prepared nothing for it yet, because nearly all locks are free. If this
    /// one is taken, the caller gets a ticket and asks again at once. The store therefore need not look up the holder,
    /// and may answer [`Attempt::Contended`](crate::Attempt::Contended).
    pub tentative: bool,
    /// Whether the claim slept in the queue and, as far as it knows, only confirms its place. The store may delay it
    /// for a few milliseconds, and confirm several claims together.
    pub asleep: bool,
}

impl AcquireRequest {
    /// Makes a first request, without a place in the queue.
    #[must_use]
    pub fn new(claim: Claim, info: HolderInfo) -> Self {
        let execute_within = (claim.ttl / 6).max(Duration::from_millis(20));
        Self {
            claim,
            info,
            floor: FencingToken::default(),
            repeated: false,
            execute_within,
            kept_for: Duration::ZERO,
            ticket: None,
            tentative: false,
            asleep: false,
        }
    }
}

/// How a claim is queued in the store. A grant uses the settings of the ticket, never those of the caller that releases
/// the lock.
///
/// ```
/// use std::time::Duration;
/// use lock_core::{HolderInfo, LockKey};
/// use lock_store::{AcquireRequest, Claim, Ticket};
///
/// let claim = Claim::new(LockKey::new("report")?, Duration::from_secs(30));
/// let mut request = AcquireRequest::new(claim, HolderInfo::new("web-3", 4711, "night::report"));
/// // The caller waits in the store's queue; `inbox-1` is the id of its process's inbox.
/// request.ticket = Some(Ticket::new("inbox-1".into(), 1, Duration::from_secs(5)));
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ticket {
    /// The inbox that gets the grant: [`Inbox::id`](crate::Inbox::id).
    pub inbox: Arc<str>,
    /// When the caller sent this, on a clock of its own. The queue keeps the newest stamp and the grant returns it. The
    /// lease is counted from that time.
    pub stamp: u64,
    /// How long the lock stays granted until the process takes it up.
    pub grant_ttl: Duration,
    /// How long the claim may sleep at a time, once it has been in the queue for long. While it sleeps, it does not
    /// confirm its place. It confirms a grant before it relies on it. The store may let it sleep longer if many claims
    /// are ahead, and shorter if the holder's lease ends sooner. `None` if the claim must not sleep.
    pub sleep: Option<Duration>,
}

impl Ticket {
    /// Makes a ticket for a process that receives grants at `inbox`.
    #[must_use]
    pub fn new(inbox: Arc<str>, stamp: u64, grant_ttl: Duration) -> Self {
        Self { inbox, stamp, grant_ttl, sleep: None }
    }
}

/// A lock that the store has assigned to a claim in its queue.
///
/// ```
/// use std::time::Duration;
/// use lock_core::{FencingToken, LockKey};
/// use lock_store::{Claim, Grant};
///
/// // A store that grants to a claim of its queue puts this into the inbox of the claim's ticket.
/// let claim = Claim::new(LockKey::new("report")?, Duration::from_secs(5));
/// let grant = Grant::new(claim, FencingToken::new(1731), 1);
/// assert_eq!(grant.token, FencingToken::new(1731));
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The claim. Its ttl is the `grant_ttl` of the ticket.
    pub claim: Claim,
    /// The first token of the grant.
    pub token: FencingToken,
    /// The stamp of the newest confirmation of the place in the queue.
    pub stamp: u64,
}

impl Grant {
    /// Describes a grant.
    #[must_use]
    pub fn new(claim: Claim, token: FencingToken, stamp: u64) -> Self {
        Self { claim, token, stamp }
    }
}

/// The request of [`LockBackend::release`](crate::LockBackend::release).
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Release {
    /// The claim that ends.
    pub claim: Claim,
    /// How long the key stays taken before it frees itself, by the store's time. This is the rest of a `min_hold`,
    /// which may be longer than the rest of the lease. Zero frees the key at once.
    pub keep_for: Duration,
    /// Whether no caller waits for the answer. The store may then send the release together with the next command, but
    /// must send it soon in any case.
    pub in_background: bool,
    /// The run of a job that ends with the claim.
    pub run: Option<JobRun>,
}

impl Release {
    /// Ends a claim at once.
    #[must_use]
    pub fn new(claim: Claim) -> Self {
        Self { claim, keep_for: Duration::ZERO, in_background: false, run: None }
    }
}
