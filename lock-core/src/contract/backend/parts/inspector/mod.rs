//! What a store tells those who look after a fleet: who holds which lock, and who waits.

mod entry;
mod holder;
mod page;
mod revocation;

use std::future::Future;

use crate::contract::backend::{AnyBackend, Freed, JobRecord};
use crate::types::error::Result;
use crate::types::key::LockKey;

pub use entry::{EntryState, LockEntry};
pub use holder::{FleetHolder, Waiter};
pub use page::{ScanPage, ScanPosition};
pub use revocation::{Revocation, RevokeFrom};

/// The part of a store that tells who holds which lock in the whole fleet and who waits, and takes a lock away from its
/// holder: `lockctl` and the inspector of `lock-metrics` ask it. Without it the store keeps its locks to itself.
///
/// Everything but [`revoke`](Self::revoke) only reads, and is no part of an acquire. See the
/// example of [`LockEntry`].
pub trait Inspector: Send + Sync {
    /// Reads the next page of a walk through the locks whose keys begin with `prefix`, in any order: from the beginning, or
    /// after a position that an earlier page gave.
    ///
    /// About `limit` keys are looked at. A lock that is held during the whole walk is in one of its pages, or in several; one
    /// that is taken or freed meanwhile may be in none. A page may be empty although others follow.
    fn scan(
        &self,
        prefix: &str,
        limit: u32,
        after: Option<&ScanPosition>,
    ) -> impl Future<Output = Result<ScanPage>> + Send;

    /// Reads one lock. `None` if it is free.
    fn entry(&self, key: &LockKey) -> impl Future<Output = Result<Option<LockEntry>>> + Send;

    /// Lists the waiters in the queue of a key, in order of arrival, at most about a thousand. A store without a queue knows
    /// of none.
    fn waiters(&self, key: &LockKey) -> impl Future<Output = Result<Vec<Waiter>>> + Send;

    /// Takes a lock away from the holder that is named, and from no other. The comparison and the release are one step.
    ///
    /// The process of that holder is told who does so and why, if it can be ([`Inbox::revoked`](crate::Inbox::revoked)). The
    /// next grant has a greater token, as after any release.
    fn revoke(&self, key: &LockKey, revocation: &Revocation) -> impl Future<Output = Result<Freed>> + Send;

    /// Lists those who share a lock, in the order in which their leases end, at most about a thousand. A store that shares no
    /// lock knows of none.
    fn sharers(&self, key: &LockKey) -> impl Future<Output = Result<Vec<FleetHolder>>> + Send {
        let _ = key;
        async { Ok(Vec::new()) }
    }

    /// Reads what is remembered of a job, as [`JobRecords`](crate::JobRecords) does, with no more permission than the rest of
    /// this part needs. A store that remembers no jobs knows of none.
    fn job(&self, key: &LockKey) -> impl Future<Output = Result<Option<JobRecord>>> + Send {
        let _ = key;
        async { Ok(None) }
    }

    /// Returns the one store that keeps a key, if this one only knows the way to it.
    fn keeper(&self, key: &LockKey) -> impl Future<Output = Result<Option<AnyBackend>>> + Send {
        let _ = key;
        async { Ok(None) }
    }
}
