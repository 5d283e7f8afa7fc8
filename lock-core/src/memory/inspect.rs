//! Lists locks and holders, for people and for programs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::memory::{MemoryStore, State};
use lock_store::contract::backend::{
    Claim, EntryState, FleetHolder, Freed, Inspector, JobRecord, JobRecords as _, LockBackend as _, LockEntry, Release,
    Revocation, RevokeFrom, ScanPage, ScanPosition, Waiter,
};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::{Timestamp, since_epoch};

/// The walk visits the keys in their order. A position is the last key of a page.
impl Inspector for MemoryStore {
    async fn scan(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        let (now, last) = (self.now(), after.and_then(ScanPosition::get::<LockKey>));
        let state = self.command()?;
        let mut page = ScanPage::new(self.kind());
        if last.is_none() {
            let below = state.jobs.keys().filter(|key| key.as_str().starts_with(prefix));
            page.jobs = below.filter_map(|key| Some((key.clone(), state.last_run(key, now)?))).collect();
            page.done = state.all_done(prefix, now);
        }
        let is_next = |key: &&LockKey| key.as_str().starts_with(prefix) && last.is_none_or(|last| *key > last);
        let mut keys: Vec<&LockKey> = state.locks.keys().chain(state.phases.keys()).filter(is_next).collect();
        keys.sort_unstable();
        let limit = limit.max(1) as usize;
        page.next = keys.get(limit).map(|_| ScanPosition::new(keys[limit - 1].clone()));
        keys.truncate(limit);
        page.visited = keys.len() as u64;
        page.entries = keys.into_iter().filter_map(|key| state.entry(key, now)).collect();
        Ok(page)
    }

    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        let now = self.now();
        Ok(self.command()?.entry(key, now))
    }

    async fn waiters(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        let now = self.now();
        Ok(self.command()?.waiters(key, now))
    }

    async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        // A client of another library cannot write into this store.
        let RevokeFrom::Owner(owner) = revocation.from else { return Ok(Freed::NotHeld) };
        let now = self.now();
        let mut state = self.command()?;
        let mut claim = Claim::new(key.clone(), Duration::ZERO);
        claim.owner = owner;
        let freed = state.free(&Release::new(claim), now);
        if freed == Freed::Released {
            for inbox in state.inboxes.values() {
                inbox.revoked(owner, &revocation.actor, &revocation.reason);
            }
        }
        Ok(freed)
    }

    async fn sharers(&self, key: &LockKey) -> Result<Vec<FleetHolder>> {
        let now = self.now();
        Ok(self.command()?.fleet_sharers(key, now))
    }

    async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.last_run(key).await
    }
}

impl State {
    fn entry(&self, key: &LockKey, now: Timestamp) -> Option<LockEntry> {
        let mut entry = match self.locks.get(key).filter(|slot| slot.expires > now) {
            Some(slot) => {
                let mut holder = slot.holder(now);
                holder.since = Some(time_of_day(slot.granted));
                let mut entry = LockEntry::new(key.clone(), holder, time_of_day(now));
                entry.ttl = slot.owner.map(|_| slot.ttl);
                entry
            }
            None => self.shared_entry(key, now)?,
        };
        entry.waiters = Some(self.waiters(key, now).len() as u64);
        Some(entry)
    }

    fn shared_entry(&self, key: &LockKey, now: Timestamp) -> Option<LockEntry> {
        let phase = self.phases.get(key).filter(|phase| phase.is_live(now))?;
        let mut entry = LockEntry::new(key.clone(), phase.holder(now), time_of_day(now));
        (entry.state, entry.units) = (EntryState::Shared, Some(phase.used()));
        entry.mode = self.fleet_sharers(key, now).last().and_then(|lasts_longest| lasts_longest.mode);
        Some(entry)
    }
}

/// Returns the time of day at a time of this process.
fn time_of_day(moment: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(since_epoch(moment))
}
