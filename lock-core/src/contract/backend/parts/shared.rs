//! Claims that share a lock.

use std::future::Future;

use crate::contract::backend::{Claim, Renewal};
use crate::types::error::Result;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::owner::Holder;

/// The part of a store whose claims may share a lock, as readers and the holders of permits do.
///
/// Such a store also says [`Capabilities::modes`](crate::Capabilities::modes), answers
/// [`Attempt::Shared`](crate::Attempt::Shared), and renews and releases claims of every [`Mode`](crate::Mode). See the
/// example of [`LockBackend`](crate::LockBackend).
pub trait SharedClaims: Send + Sync {
    /// Turns an exclusive claim that holds the lock into one that shares it, without a moment in which nobody
    /// holds it, and lets in those at the head of the queue that fit beside it.
    ///
    /// `claim` is as it will be: the owner of the exclusive claim, with the mode that it takes on. `token` is the
    /// last that was given under it, and becomes that of the phase. Idempotent. Renewals and releases of the shared
    /// claim may come before, and then serve the exclusive one.
    fn downgrade(&self, claim: &Claim, token: FencingToken) -> impl Future<Output = Result<Renewal>> + Send;

    /// Returns everybody who holds the key now.
    fn holders(&self, key: &LockKey) -> impl Future<Output = Result<Vec<Holder>>> + Send;
}
