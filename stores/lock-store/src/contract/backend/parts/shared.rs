//! Claims that share a lock.

use std::future::Future;

use crate::contract::backend::{Claim, Renewal};
use crate::types::error::Result;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::owner::Holder;

/// The part of a store whose claims may share a lock, as readers and holders of permits do.
///
/// Such a store also sets [`Capabilities::modes`](crate::Capabilities::modes), answers
/// [`Attempt::Shared`](crate::Attempt::Shared), and renews and releases claims of every [`Mode`](crate::Mode). See the
/// example of [`LockBackend`](crate::LockBackend).
pub trait SharedClaims: Send + Sync {
    /// Turns an exclusive claim that has the lock into one that shares it. The lock is never free in between. Then lets
    /// in the claims at the head of the queue that fit beside it.
    ///
    /// `claim` is the claim after the change: the owner of the exclusive claim, with its new mode. `token` is the last
    /// token that was given under the exclusive claim, and becomes the token of the phase. Idempotent. A renewal or
    /// release of the shared claim may arrive first; it then applies to the exclusive claim.
    fn downgrade(&self, claim: &Claim, token: FencingToken) -> impl Future<Output = Result<Renewal>> + Send;

    /// Returns all current holders of the key.
    fn holders(&self, key: &LockKey) -> impl Future<Output = Result<Vec<Holder>>> + Send;
}
