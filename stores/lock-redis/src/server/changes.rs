//! The connections on which a server reports changes to the keys that were read over them.
//!
//! Redis remembers which connection read a key (`CLIENT TRACKING`) and reports the key's next
//! change to it: `DEL`, `SET`, expiry, eviction, `FLUSHALL`. Only renewals read anything over such a
//! connection, so a lock that is released before its first renewal costs nothing, and `NOLOOP`
//! keeps our own renewals quiet. Such a report is only a hint: the keeper asks the server before it
//! believes it. It may also be false: a server that tracks more keys than `tracking-table-max-keys`
//! allows forgets some, and reports them as changed.
//!
//! If the server refuses to track or to read, that is requested again while the connection lasts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use crate::connection::greeting;
use crate::connection::link::Link;
use crate::on_drop::OnDrop;
use lock_store::contract::backend::Inbox;
use lock_store::types::system::backoff::Backoff;
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;

/// How long the connection may take to prove that it is alive, after a renewal without an answer, and while claims sleep.
const PROOF_WITHIN: Duration = Duration::from_secs(1);

/// How often it must prove that while claims sleep, who ask for nothing that could stay unanswered; and how often while all of
/// them sleep for so long at a time that many others stand in front of them.
const PROOF_EVERY: Duration = Duration::from_secs(5);
const PROOF_AT_LEAST_EVERY: Duration = Duration::from_secs(30);
const LONG_SLEEP: Duration = Duration::from_secs(60);

/// The pauses before the server is asked again for what it refused: the first, and the longest.
const ASK_AGAIN: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Until when claims of our processes sleep at a server, and rely on being told.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    until: AtomicU64,
    /// The same of those who do not sleep long.
    briefly_until: AtomicU64,
}

impl Sleepers {
    /// Notes that a claim asks again after this pause.
    pub(crate) fn note(&self, now: Timestamp, pause: Duration) {
        let until = now.after(pause).as_nanos();
        self.until.fetch_max(until, Ordering::Relaxed);
        if pause < LONG_SLEEP {
            self.briefly_until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// Returns whether there are any.
    pub(crate) fn are_there(&self, now: Timestamp) -> bool {
        self.until.load(Ordering::Relaxed) > now.as_nanos()
    }

    /// Returns whether they want to know that the connection is alive, which has last proved it at a moment.
    fn need_proof(&self, proven: Timestamp, now: Timestamp) -> bool {
        let briefly = self.briefly_until.load(Ordering::Relaxed) > now.as_nanos();
        // With the slack of half a look: two of them are never exactly so far apart.
        let long_ago = now.since(proven) + PROOF_EVERY / 2 >= PROOF_AT_LEAST_EVERY;
        self.are_there(now) && (briefly || long_ago)
    }
}

/// The listening connections of one store, one for each runtime with a keeper.
#[derive(Debug, Default)]
pub(crate) struct ChangeListeners {
    open: Mutex<HashMap<Id, Arc<ChangeListener>>>,
    /// Whether the server does not report changes, or does not let us ask for reports.
    refused: AtomicBool,
}

/// A connection on which the server reports changes, if it is willing to.
#[derive(Debug)]
pub(crate) struct ChangeListener {
    pub(crate) link: Link,
    /// Whether the server reports changes to the keys that are read over it.
    tracks: AtomicBool,
    refused: Notify,
    /// Whether a renewal got no answer. Until the connection proves alive, other renewals go over
    /// another connection.
    in_doubt: AtomicBool,
    doubted: Notify,
}

impl ChangeListeners {
    /// Returns whether the server reports changes, as far as is known.
    pub(crate) fn can_hear(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// Makes a connection available to renewals, until the second result is dropped.
    pub(crate) fn open(&self, link: Link, tracks: bool) -> (Arc<ChangeListener>, OnDrop<impl FnMut()>) {
        let listener = Arc::new(ChangeListener {
            link,
            tracks: tracks.into(),
            refused: Notify::new(),
            in_doubt: AtomicBool::new(false),
            doubted: Notify::new(),
        });
        let (runtime, opened) = (Handle::current().id(), Arc::clone(&listener));
        self.open.lock().insert(runtime, Arc::clone(&listener));
        let close = move || {
            let mut open = self.open.lock();
            // Another manager on the same runtime may have put its own connection here.
            let is_this = open.get(&runtime).is_some_and(|listener| Arc::ptr_eq(listener, &opened));
            let removed = if is_this { open.remove(&runtime) } else { None };
            drop(open);
            drop(removed);
        };
        (listener, OnDrop(close))
    }

    /// Notes that the server does not let us listen at all.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Returns every listening connection.
    pub(crate) fn all(&self) -> Vec<Arc<ChangeListener>> {
        self.open.lock().values().cloned().collect()
    }

    /// Returns the connection to renew over, if this is a keeper whose connection tracks and seems alive.
    pub(crate) fn current(&self) -> Option<Arc<ChangeListener>> {
        let runtime = Handle::try_current().ok()?.id();
        let serves = |listener: &&Arc<ChangeListener>| {
            listener.tracks.load(Ordering::Relaxed) && !listener.in_doubt.load(Ordering::Relaxed)
        };
        self.open.lock().get(&runtime).filter(serves).cloned()
    }
}

impl ChangeListener {
    /// Notes that the server refuses to let us read over this connection.
    pub(crate) fn refuse(&self) {
        self.tracks.store(false, Ordering::Relaxed);
        self.refused.notify_one();
    }

    /// Begins a renewal: unless it is answered, the connection must prove that it is alive.
    pub(crate) fn unanswered(&self) -> Unanswered<'_> {
        Unanswered(Some(self))
    }

    /// Checks that the connection is alive after each renewal that got no answer, and now and then while claims sleep. Ends when
    /// it is not.
    pub(crate) async fn prove_alive(&self, sleepers: &Sleepers) {
        let clock = Clock::system();
        let mut proven = clock.now();
        loop {
            let soon = clock.now().after(PROOF_EVERY);
            tokio::select! {
                () = self.doubted.notified() => {}
                () = clock.sleep_until(soon) => {
                    if !sleepers.need_proof(proven, clock.now()) {
                        continue;
                    }
                }
            }
            let ping = redis::cmd("PING");
            #[expect(clippy::disallowed_methods, reason = "bounds a task of the keeper that no caller drives")]
            let proof = tokio::time::timeout(PROOF_WITHIN, self.link.send(&ping)).await;
            // A refusal is an answer too.
            let alive = proof.is_ok_and(|answer| answer.map_or_else(|error| error.code().is_some(), |_| true));
            if !alive {
                return;
            }
            self.in_doubt.store(false, Ordering::Relaxed);
            proven = clock.now();
        }
    }

    /// Asks the server to report changes again whenever it has refused, with growing pauses. Ends with the
    /// connection.
    pub(crate) async fn keep_tracking(&self, listeners: &ChangeListeners, inbox: &Inbox, node: &str) {
        let clock = Clock::system();
        let mut backoff = ASK_AGAIN;
        loop {
            if self.tracks.load(Ordering::Relaxed) {
                listeners.refused.store(false, Ordering::Relaxed);
                let since = clock.now();
                self.refused.notified().await;
                backoff.went_well_for(clock.now().since(since));
            }
            if !listeners.refused.swap(true, Ordering::Relaxed) {
                tracing::info!(
                    node,
                    "this server does not report changed keys, so a loss is noticed at the next renewal; to notice \
                     it at once, use Redis 7 and permit CLIENT TRACKING and MGET",
                );
            }
            clock.sleep_until(clock.now().after(backoff.long_pause())).await;
            let Ok(answers) = self.link.send_all(&greeting::tracking()).await else { return };
            if greeting::tracks(&answers) {
                self.tracks.store(true, Ordering::Relaxed);
                // Renews every lease, which the server then tracks.
                inbox.reconnected();
            }
        }
    }
}

/// Marks a connection as doubtful if this is dropped before the answer has come.
pub(crate) struct Unanswered<'a>(Option<&'a ChangeListener>);

impl Unanswered<'_> {
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(listener) = self.0 {
            listener.in_doubt.store(true, Ordering::Relaxed);
            listener.doubted.notify_one();
        }
    }
}

#[cfg(test)]
#[path = "tests/changes.rs"]
mod tests;
