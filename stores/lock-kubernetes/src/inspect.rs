//! The locks of a whole fleet, as the Leases of a namespace show them.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lock_store::{
    EntryState, Freed, Inspector, JobRecord, JobRecords as _, LockEntry, LockError, LockKey, Mode, Result, Revocation,
    ScanPage, ScanPosition, Waiter,
};

use crate::calls::beside;
use crate::data::{self, between};
use crate::names::lease_of;
use crate::record::{Holding, Record};
use crate::shared::{Shared, day};
use crate::store::Kubernetes;

/// How long a look may take.
const LOOK: Duration = Duration::from_secs(10);

/// How many Leases are in one page at most.
const TOGETHER: u32 = 500;

/// How much later than its lease a lock is still shown that nobody took over. Its holder's clock may be behind.
const LATE: Duration = Duration::from_secs(5);

impl Inspector for Kubernetes {
    async fn scan(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        let from = after.map_or(Some(String::new()), |after| after.get::<String>().cloned());
        let Some(from) = from else {
            return Err(LockError::misconfigured("the position of the walk is of another store"));
        };
        let prefix = prefix.to_owned();
        let look = |shared: Arc<Shared>, until| async move {
            let (leases, next) = shared.api.list(limit.clamp(1, TOGETHER), &from, until).await?;
            let mut page = ScanPage::new(&*shared.api.settings.node);
            (page.visited, page.next) = (leases.len() as u64, next.map(ScanPosition::new));
            for record in leases.into_iter().filter_map(|lease| Record::of(lease).ok()) {
                let Some(key) = record.key().filter(|key| key.as_str().starts_with(&prefix)) else { continue };
                let now = shared.server_now();
                page.jobs.extend(data::job(record.notes(), now).map(|job| (key.clone(), job)));
                page.done.extend(data::marks(record.notes(), now).into_iter().map(|mark| (key.clone(), mark)));
                page.entries.extend(entry(&shared, key, &record));
            }
            Ok(page)
        };
        self.thread.ask_within(LOOK, look).await
    }

    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        let key = key.clone();
        let look = |shared: Arc<Shared>, until| async move {
            let seen = shared.read(&lease_of(&key), until).await?;
            // The things that this process has seen itself are certain. It may be free although its time seems to run.
            let record = shared.taken_until(&seen).and(seen.record);
            Ok(record.and_then(|record| entry(&shared, key, &record)))
        };
        self.thread.ask_within(LOOK, look).await
    }

    /// Lists the waiters that have announced themselves, as each does after a second.
    async fn waiters(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        let key = key.clone();
        let look = |shared: Arc<Shared>, until| async move {
            let (record, now) = (beside::read(&shared, &key, until).await?, shared.server_now());
            let waits = record.map(|record| data::waits(record.notes(), now)).unwrap_or_default();
            let described = waits.into_iter().zip(1..).map(|(wait, position)| {
                let mut waiter = Waiter::new(position, wait.owner, between(wait.since, now));
                (waiter.info, waiter.mode) = (Some(wait.info), Some(Mode::Exclusive));
                waiter
            });
            Ok(described.collect())
        };
        self.thread.ask_within(LOOK, look).await
    }

    async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        let (key, revocation) = (key.clone(), revocation.clone());
        self.thread.ask_within(LOOK, |shared, until| beside::revoke(shared, key, revocation, until)).await
    }

    async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.last_run(key).await
    }
}

/// Describes a lock that is taken. By what its holder says it was renewed at, which is only shown and decides nothing.
fn entry(shared: &Shared, key: LockKey, record: &Record) -> Option<LockEntry> {
    let (now, (_, renewed)) = (shared.server_now(), record.times());
    let ends = renewed.map_or(now, |renewed| data::later(renewed, record.lasts()));
    let left = match record.holding() {
        Holding::Free => return None,
        Holding::Kept(until) if until <= now => return None,
        Holding::Kept(until) => between(now, until),
        // A dead holder's Lease stays as it is until somebody wants it.
        _ if between(ends, now) > LATE + record.lasts() => return None,
        _ => between(now, ends).min(record.lasts()),
    };
    let holder = shared.holder(record, left);
    let mut entry = LockEntry::new(key, holder, day(now).unwrap_or(UNIX_EPOCH));
    entry.waiters = u64::try_from(data::waits(record.notes(), now).len()).ok();
    entry.details.push(("lease", record.name().to_owned()));
    entry.details.push(("transitions", record.transitions().to_string()));
    match record.holding() {
        Holding::Claim(_) => entry.ttl = data::ttl(record.notes()),
        Holding::Foreign(identity) => {
            (entry.state, entry.mode) = (EntryState::Held, Some(Mode::Exclusive));
            (entry.ttl, entry.foreign_value) = (Some(record.lasts()), Some(identity.into_bytes()));
        }
        _ => {}
    }
    Some(entry)
}
