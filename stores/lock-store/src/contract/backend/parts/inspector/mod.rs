//! The part of a store for operators of a fleet: it lists locks, holders and waiters.

mod entry;
mod holder;
mod page;
mod revocation;

use std::future::Future;

use crate::contract::backend::{AnyBackend, Freed, JobRecord, SyncReport};
use crate::types::error::Result;
use crate::types::key::LockKey;

pub use entry::{EntryState, LockEntry};
pub use holder::{FleetHolder, Waiter};
pub use page::{ScanPage, ScanPosition};
pub use revocation::{Revocation, RevokeFrom};

/// The part of a store that lists the locks of the whole fleet with their holders and waiters. It also takes a lock
/// away from its holder. `lockctl` and the inspector of `lock-metrics` ask it. Without it, the store cannot be
/// inspected.
///
/// Every method except [`revoke`](Self::revoke) only reads, and no acquire calls any of them.
///
/// See the example of [`LockEntry`].
pub trait Inspector: Send + Sync {
    /// Reads the next page of a walk through the locks whose keys begin with `prefix`, in any order. The walk starts at
    /// the beginning, or after a position that an earlier page gave.
    ///
    /// About `limit` keys are visited. With a limit of 0, a quorum visits none and returns the locks that it knows. A lock
    /// that is held during the whole walk is in at least one of its pages. A lock that is taken or freed during the walk may
    /// be missing. A page may be empty although others follow.
    fn scan(
        &self,
        prefix: &str,
        limit: u32,
        after: Option<&ScanPosition>,
    ) -> impl Future<Output = Result<ScanPage>> + Send;

    /// Reads a page for a caller that counts strings of other clients only below these prefixes. A quorum compares only
    /// those between its members. It returns the others as one member has them.
    fn scan_with_foreign(
        &self,
        prefix: &str,
        foreign: &[String],
        limit: u32,
        after: Option<&ScanPosition>,
    ) -> impl Future<Output = Result<ScanPage>> + Send {
        let _ = foreign;
        self.scan(prefix, limit, after)
    }

    /// Reads one lock. `None` if it is free. A quorum also returns a lock that fewer members than a majority have, with
    /// that [state](EntryState).
    fn entry(&self, key: &LockKey) -> impl Future<Output = Result<Option<LockEntry>>> + Send;

    /// Lists the waiters in the queue of a key, in order of arrival, at most about a thousand. A store without a queue
    /// returns an empty list.
    fn waiters(&self, key: &LockKey) -> impl Future<Output = Result<Vec<Waiter>>> + Send;

    /// Takes a lock away from the named holder, and from no other. The comparison and the release are one step.
    ///
    /// Where possible, the process of that holder is told who does so and why
    /// ([`Inbox::revoked`](crate::Inbox::revoked)). The next grant has a greater token, as after any release.
    fn revoke(&self, key: &LockKey, revocation: &Revocation) -> impl Future<Output = Result<Freed>> + Send;

    /// Lists the holders that share a lock, in the order in which their leases end, at most about a thousand. A store
    /// without shared locks returns an empty list.
    fn sharers(&self, key: &LockKey) -> impl Future<Output = Result<Vec<FleetHolder>>> + Send {
        let _ = key;
        async { Ok(Vec::new()) }
    }

    /// Reads the record of a job, like [`JobRecords`](crate::JobRecords), but with only the permissions that the rest
    /// of this part needs. A store that remembers no jobs returns `None`.
    fn job(&self, key: &LockKey) -> impl Future<Output = Result<Option<JobRecord>>> + Send {
        let _ = key;
        async { Ok(None) }
    }

    /// Reads what each member says about a key, if this store is a quorum. A member that does not answer costs the others
    /// nothing.
    fn members(&self, key: &LockKey) -> impl Future<Output = Result<Option<SyncReport<Option<LockEntry>>>>> + Send {
        let _ = key;
        async { Ok(None) }
    }

    /// Returns the one store that has a key, if this store only routes to it.
    fn keeper(&self, key: &LockKey) -> impl Future<Output = Result<Option<AnyBackend>>> + Send {
        let _ = key;
        async { Ok(None) }
    }
}
