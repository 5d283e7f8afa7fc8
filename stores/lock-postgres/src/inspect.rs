//! Lists the holders of locks, for people and for programs.

use lock_core::{LockKey, Result};
use lock_store::{Freed, Inspector, JobRecord, JobRecords as _, LockEntry, Revocation, ScanPage, ScanPosition, Waiter};

use crate::calls::call::Call;
use crate::store::PostgresStore;

/// The keys are walked through in their order; a position is the last of a page.
impl Inspector for PostgresStore {
    async fn scan(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        let last = after.and_then(ScanPosition::get::<Vec<u8>>).cloned();
        self.ask((prefix.to_owned(), limit, last), Call::Scan, Err).await
    }

    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        self.ask(key.clone(), Call::Entry, Err).await
    }

    async fn waiters(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        self.ask(key.clone(), Call::Waiters, Err).await
    }

    async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        self.ask((key.clone(), revocation.clone()), Call::Revoke, Err).await
    }

    async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.last_run(key).await
    }
}
