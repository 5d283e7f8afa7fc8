//! What a store answers.

use std::time::Duration;

use crate::types::fencing::FencingToken;
use crate::types::owner::Holder;

/// The answer to [`LockBackend::try_acquire`](crate::LockBackend::try_acquire).
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The lock belongs to the claim, for its whole ttl from now.
    Granted {
        /// The first number of the grant.
        token: FencingToken,
    },
    /// The claim shares the lock, for its whole ttl from now.
    Shared {
        /// The token of the phase: all who share the lock at one time have the same.
        token: FencingToken,
        /// Whether somebody waits, or the process could not be told that somebody does. It should then let nobody else
        /// in under this claim.
        wanted: bool,
    },
    /// The lock belongs to somebody else.
    Held {
        /// Who, and for how long at most.
        holder: Holder,
    },
    /// The lock belongs to somebody else. By whom it is held was not looked at, because the request was
    /// [tentative](crate::AcquireRequest::tentative): it is sent again at once, with a ticket.
    Contended,
    /// The lock belongs to somebody else, and the claim stands in the store's queue.
    Queued {
        /// Who holds it, and for how long at most.
        holder: Holder,
    },
    /// The same, and the claim sleeps, as its [ticket](crate::Ticket::sleep) allows: it keeps its place although it does not
    /// ask for a while, and is told if it is to ask sooner.
    Asleep {
        /// Who holds it, and for how long at most.
        holder: Holder,
        /// For how long it need not ask. The store takes it for gone after three times as long.
        pause: Duration,
    },
}

/// The answer to [`LockBackend::try_acquire_all`](crate::LockBackend::try_acquire_all).
///
/// ```
/// use lock_core::AttemptAll;
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
#[non_exhaustive]
pub enum AttemptAll {
    /// Every lock belongs to its claim, for the whole ttl from now.
    Granted {
        /// The first number of each claim's grant, in order. Tokens are only compared within one key, so
        /// they may all be the same.
        tokens: Vec<FencingToken>,
    },
    /// One of the locks belongs to somebody else, so none was taken.
    Held {
        /// The first such lock, in the order of the requests.
        index: usize,
        /// Who holds it, and for how long at most.
        holder: Holder,
    },
    /// The store cannot take these locks in one step, and has done nothing.
    Apart,
}

/// The answer to [`LockBackend::renew`](crate::LockBackend::renew) for one claim.
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease runs for its whole ttl from now.
    Renewed,
    /// The same, and somebody waits for those who share the lock. The process should let nobody else in under this
    /// claim.
    Wanted,
    /// The key is gone or belongs to somebody else.
    Lost,
}

/// The answer to [`LockBackend::release`](crate::LockBackend::release) and [`LockBackend::withdraw`](crate::LockBackend::withdraw).
///
/// See the example of [`LockBackend`](crate::LockBackend).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freed {
    /// The claim held the lock, and no longer does.
    Released,
    /// The claim did not hold the lock.
    NotHeld,
}
