//! The state that the calls of a store share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_store::thread::ThreadState;
use lock_store::{Holder, HolderInfo, LockError, LockKey, Result, Timestamp};
use tokio::sync::Semaphore;

use crate::api::Api;
use crate::data::{KEY, waits};
use crate::held::Claims;
use crate::known::{Known, Seen, Standing};
use crate::names::lease_of;
use crate::record::{Holding, Record};
use crate::server_time::ServerTime;
use crate::url::Settings;
use crate::waiters::Waiters;

/// How many renewals are sent at the same time. Each has a connection, and other calls have theirs.
const RENEWALS: usize = 16;

/// From how many locks on the load on the API server is worth a warning.
const NAMES: usize = 50;

/// The call site of a holder that is not of this library. It is a metric label.
const FOREIGN: &str = "leader election";

/// The state that the calls of a store share.
pub(crate) struct Shared {
    pub(crate) api: Api,
    thread: ThreadState,
    pub(crate) known: Known,
    pub(crate) claims: Claims,
    pub(crate) waiters: Waiters,
    pub(crate) renewals: Semaphore,
    warned: AtomicBool,
}

impl Deref for Shared {
    type Target = ThreadState;

    fn deref(&self) -> &ThreadState {
        &self.thread
    }
}

impl Shared {
    pub(crate) fn new(settings: Settings, thread: ThreadState) -> Self {
        Self {
            api: Api::new(settings, thread.runtime.clone()),
            thread,
            known: Known::default(),
            claims: Claims::default(),
            waiters: Waiters::default(),
            renewals: Semaphore::new(RENEWALS),
            warned: AtomicBool::new(false),
        }
    }

    pub(crate) fn time(&self) -> &ServerTime {
        &self.api.time
    }

    /// Returns the time of the server's clock, or one that is a little earlier.
    pub(crate) fn server_now(&self) -> i64 {
        self.time().least(self.now())
    }

    /// Returns whether a waiter is told of changes. The watch opens the inbox.
    pub(crate) fn tells(&self) -> bool {
        self.inbox().is_some_and(|inbox| inbox.is_open())
    }

    /// Reads a Lease, and notes how it looks.
    pub(crate) async fn read(&self, name: &str, until: Timestamp) -> Result<Seen> {
        let asked = self.now();
        let record = self.api.get(name, until).await?;
        Ok(self.note(name, record, asked))
    }

    /// Notes how a Lease looks by an answer to a request that was sent at `asked`.
    pub(crate) fn note(&self, name: &str, record: Option<Arc<Record>>, asked: Timestamp) -> Seen {
        let seen = self.known.note(name, record, asked, self.now());
        seen.record.iter().for_each(|record| self.claims.see(record));
        seen
    }

    /// Returns until when a lock is taken if nobody renews it. `None` if it is free.
    pub(crate) fn taken_until(&self, seen: &Seen) -> Option<Timestamp> {
        match seen.standing(None, self.now(), self.time()) {
            Standing::Taken(until) => Some(until),
            Standing::Free | Standing::Own => None,
        }
    }

    /// Plans when the waiters of a lock are woken.
    pub(crate) fn plan(&self, name: &str) {
        let (Some(seen), Some((own, since))) = (self.known.get(name), self.waiters.of(name)) else { return };
        let from = self.taken_until(&seen).unwrap_or_else(|| self.now());
        let waits = seen.record.map(|record| waits(record.notes(), self.server_now())).unwrap_or_default();
        let ahead = waits.iter().filter(|wait| wait.since < since && !own.contains(&wait.owner)).count();
        self.waiters.plan(name, from, ahead);
    }

    /// Describes what is in the way of a claim, as far as this process has seen it.
    pub(crate) fn in_the_way(&self, seen: &Seen) -> Holder {
        let Some(record) = &seen.record else { return Holder::unseen() };
        self.holder(record, self.taken_until(seen).map_or(Duration::ZERO, |until| until.since(self.now())))
    }

    /// Describes the holder in a record, whose lease runs for `left` if this process is not its holder.
    pub(crate) fn holder(&self, record: &Record, left: Duration) -> Holder {
        let mut holder = Holder::foreign(Some(left));
        holder.since = record.times().0.and_then(day);
        match record.holding() {
            Holding::Free => {}
            Holding::Claim(owner) => {
                holder.ttl_left = Some(self.claims.left(owner, self.now()).unwrap_or(left));
                (holder.owner, holder.info) = (Some(owner), record.info());
            }
            Holding::Kept(_) => {
                holder.info = record.info();
                return holder.kept();
            }
            Holding::Foreign(identity) => holder.info = Some(HolderInfo::new(identity, 0, FOREIGN)),
        }
        holder
    }

    /// Warns once if this process holds so many locks that the API server pays for them.
    pub(crate) fn note_names(&self, names: usize) {
        if names > NAMES && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                names,
                "this process holds more than {NAMES} locks in Kubernetes; each costs the API server and etcd a write every third \
                 of its ttl, so use fewer names, a longer ttl, or another store"
            );
        }
    }
}

/// Reads a time in ms since 1970.
pub(crate) fn day(millis: i64) -> Option<std::time::SystemTime> {
    std::time::UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(millis).ok()?))
}

/// Checks that a Lease is that of a key.
pub(crate) fn check_key(record: &Record, key: &LockKey) -> Result<()> {
    // An operator may have removed it, and a Lease of another client has none.
    if record.notes().get(KEY).is_none_or(|known| known == key.as_str()) {
        return Ok(());
    }
    let text = format!(
        "the Lease {:?} says by its annotation lock-core/key that it is another lock; remove the annotation, or the Lease",
        lease_of(key)
    );
    Err(LockError::misconfigured(text).with_key(key))
}
