//! The answers of a store.

use std::time::Duration;

use crate::types::fencing::FencingToken;
use crate::types::owner::Holder;

/// The answer to [`LockBackend::try_acquire`](crate::LockBackend::try_acquire).
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Debug)]
pub enum Attempt {
    /// The claim has the lock, for its whole ttl from now, or for `lease`.
    Granted {
        /// The first token of the grant.
        token: FencingToken,
        /// How long the store promises the lock, if that is less than the ttl. See [`Renewal::RenewedFor`].
        lease: Option<Duration>,
    },
    /// The claim shares the lock, for its whole ttl from now.
    Shared {
        /// The token of the phase. All claims that share the lock at the same time have the same token.
        token: FencingToken,
        /// Whether a waiter exists, or the process could not be told of one. The process should then let no other
        /// caller in under this claim.
        wanted: bool,
    },
    /// Another claim has the lock.
    Held {
        /// The holder, and how long its lease lasts at most.
        holder: Holder,
    },
    /// Another claim has the lock. The store did not look up which one, because the request was
    /// [tentative](crate::AcquireRequest::tentative). The caller asks again at once, with a ticket.
    Contended,
    /// Another claim has the lock, and this claim is in the store's queue.
    Queued {
        /// The holder, and how long its lease lasts at most.
        holder: Holder,
    },
    /// Like [`Queued`](Self::Queued), and the claim sleeps, as its [ticket](crate::Ticket::sleep) allows. It keeps its
    /// place although it does not ask for a while. The store tells it if it must ask sooner.
    Asleep {
        /// The holder, and how long its lease lasts at most.
        holder: Holder,
        /// How long it need not ask. The store drops the claim after three times this time.
        pause: Duration,
    },
}

/// The answer to [`LockBackend::try_acquire_all`](crate::LockBackend::try_acquire_all).
///
/// ```
/// use lock_store::AttemptAll;
///
/// fn taken(answer: &AttemptAll) -> usize {
///     match answer {
///         AttemptAll::Granted { tokens } => tokens.len(),
///         _ => 0,
///     }
/// }
/// assert_eq!(taken(&AttemptAll::Apart), 0);
/// ```
#[derive(Clone, Debug)]
pub enum AttemptAll {
    /// Every claim has its lock, for the whole ttl from now.
    Granted {
        /// The first token of each claim's grant, in order. Tokens are only compared within one key, so they may all be
        /// equal.
        tokens: Vec<FencingToken>,
    },
    /// Another claim has one of the locks, so none was taken.
    Held {
        /// The index of the first such lock, in the order of the requests.
        index: usize,
        /// The holder, and how long its lease lasts at most.
        holder: Holder,
    },
    /// The store cannot take these locks in one step. It has not changed anything.
    Apart,
}

/// The answer to [`LockBackend::renew`](crate::LockBackend::renew) for one claim.
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs for its whole ttl from now.
    Renewed,
    /// The lease runs for this time from now. It [ends with a session](crate::LockBackend#locks-that-end-with-a-session).
    RenewedFor(Duration),
    /// Renewed, and a waiter exists for the shared lock. The process should let no other caller in under this claim.
    Wanted,
    /// The key does not exist, or another claim has it.
    Lost,
}

impl Renewal {
    /// Returns how long the lease runs that was renewed for a claim of this ttl, or nothing if it is lost.
    #[must_use]
    pub fn lease(self, ttl: Duration) -> Option<Duration> {
        match self {
            Self::Renewed | Self::Wanted => Some(ttl),
            Self::RenewedFor(lease) => Some(lease.min(ttl)),
            Self::Lost => None,
        }
    }
}

/// The answer to [`LockBackend::release`](crate::LockBackend::release) and [`LockBackend::withdraw`](crate::LockBackend::withdraw).
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// The claim had the lock, and no longer has it.
    Released,
    /// The claim did not have the lock.
    NotHeld,
}
