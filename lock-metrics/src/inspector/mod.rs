//! Inspects the locks of the whole fleet in the store, from one elected instance.

mod classify;
mod count;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lock_core::inspect::{FleetReader, ScanOptions};
use lock_core::{Clock, LockError, LockErrorKind, LockGuard, LockKey, LockLabel, LockManager, MIN_RENEWED_TTL, sites};
use tokio::sync::oneshot;

use crate::inspector::classify::Classes;
use crate::install::error::InstallError;
use crate::install::handle::MetricsHandle;
use crate::state::fleet::{Fleet, FleetLock, MAX_FLEET_LOCKS};
use crate::state::{Core, INSPECTOR_KEY, OTHER};
use crate::words::time::Moment;

/// The lease of the election. After a crash, another instance takes over within this time and one interval.
const TERM: Duration = Duration::from_secs(30);

/// Counts the locks that the store has for the whole fleet, and exports them per lock name.
///
/// Every process may start one. They elect one of them with the lock `distributed-lock:inspector`, and the others
/// export nothing. That lock is held as long as its holder lives, and is left out of every metric and live view.
///
/// The elected inspector walks through the keys on its own thread, never during a scrape. On Redis it uses a paced
/// `SCAN`. Its numbers show facts that a process cannot report about itself: locks of processes that died, locks
/// without an expiry, and locks of other libraries.
///
/// ```no_run
/// let metrics = lock_metrics::install()?;
/// let inspector = lock_metrics::FleetInspector::new("redis://127.0.0.1")?
///     .with_prefix("legacy:", "legacy")
///     .start(&metrics)?;
/// // It stops when `inspector` is dropped.
/// # drop(inspector);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A key counts under the name that its holder stored with it, in any program. A key without a stored name belongs to
/// another library. It counts under the most specific template or prefix that matches it, otherwise under `other`: see
/// [`with_template`](Self::with_template) and [`with_prefix`](Self::with_prefix).
///
/// The URL of any node of a Redis Cluster stands for all of its masters. One scan reads them one after the other, and
/// the numbers cover all of them. All members of a quorum are read at the same time, and a lock counts if a majority has
/// it. A member that does not answer is named in the log. See [`FleetReader`].
///
/// On Redis it needs `SCAN`, `GETRANGE`, `PTTL`, `ZCOUNT`, `ZRANGE` and `HMGET`, in addition to the commands for taking
/// a lock. In a cluster it also needs `CLUSTER SLOTS`, `CLUSTER NODES` and `ASKING`. Start one for each metrics handle.
#[derive(Clone)]
#[must_use = "an inspector does nothing before it is started"]
pub struct FleetInspector {
    reader: Arc<FleetReader>,
    /// The name of the store, without the namespace.
    store: Arc<str>,
    classes: Classes,
    scan: ScanOptions,
    interval: Duration,
}

/// Keeps a [`FleetInspector`] running until it is dropped.
///
/// See the example of [`FleetInspector`].
#[derive(Debug)]
pub struct InspectorHandle {
    /// Stops the inspector when dropped.
    stop: oneshot::Sender<Infallible>,
    /// Closed when its thread has ended.
    ended: oneshot::Receiver<Infallible>,
}

impl InspectorHandle {
    /// Stops the inspector, and waits until another instance can be elected.
    ///
    /// Dropping the handle does the same without waiting. At the end of a program the thread may then be killed. No
    /// instance inspects until the lease of the election ends, 30 s later.
    ///
    /// # Cancel safety
    ///
    /// Safe: the inspector stops in any case.
    pub async fn stop(self) {
        drop(self.stop);
        let _ = self.ended.await;
    }
}

impl FleetInspector {
    /// Prepares to inspect the store of a URL: a Redis server, the cluster of a node, a quorum, or another store that has a
    /// [`lock_core::store::Inspector`]. Opens no connection yet.
    ///
    /// With `?key_prefix=prod:` in the URL, it inspects only that namespace. Names, templates and prefixes are given
    /// without the key prefix.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_core::LockErrorKind::Misconfigured) if the URL cannot be read. The text
    /// never repeats the URL.
    pub fn new(url: &str) -> Result<Self, LockError> {
        let mut classes = Classes::new();
        for site in sites() {
            classes.add_template(site.label, site.label);
        }
        let reader = Arc::new(FleetReader::new(url)?);
        let store = reader.node().into();
        Ok(Self { reader, store, classes, scan: ScanOptions::new(), interval: Duration::from_secs(30) })
    }

    /// Names the store in metrics. Default: the address in the URL.
    ///
    /// The name must be the one by which the managers name the store, see
    /// [`LockManagerBuilder::store_name`](lock_core::LockManagerBuilder::store_name): the locks in Redis are compared
    /// with the holds that those managers' processes report. As with the managers, a namespace is shown as
    /// `name#prefix`.
    pub fn with_store_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.store = name.into();
        self
    }

    /// Counts keys rendered from a template, for example `lock:user:<user_id>`, under a lock name. Applies to keys
    /// whose holder stored no name.
    ///
    /// Use the name in the holders' own metrics, so that both can be compared.
    pub fn with_template(mut self, template: &str, lock: &str) -> Self {
        self.classes.add_template(template, lock);
        self
    }

    /// Counts keys with this prefix under a lock name. String values in a foreign format count too, as locks of other
    /// clients.
    pub fn with_prefix(mut self, prefix: &str, lock: &str) -> Self {
        self.classes.add_prefix(prefix, lock);
        self.scan = self.scan.with_foreign_prefix(prefix);
        self
    }

    /// Limits the scan to keys with this prefix. Default: no limit.
    pub fn with_keys_below(mut self, prefix: &str) -> Self {
        self.scan = self.scan.with_prefix(prefix);
        self
    }

    /// Sets the pause between two scans. Default 30 s.
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(10));
        self
    }

    /// Sets about how many keys one scan visits, on all servers together. Default a million. A scan that stops at this
    /// limit is reported by `distributed_lock_inspector_truncated`.
    pub fn with_max_keys(mut self, max_keys: u64) -> Self {
        self.scan = self.scan.with_max_keys(max_keys);
        self
    }

    /// Sets the pause after each hundred keys of a scan. Default 1 ms.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.scan = self.scan.with_pause(pause);
        self
    }

    /// Joins the election, on its own thread.
    ///
    /// If the server cannot be reached, the inspector retries for ever. Watch the age of
    /// `distributed_lock_inspector_last_success_timestamp_seconds`.
    ///
    /// # Errors
    ///
    /// [`InstallError::Thread`].
    pub fn start(self, metrics: &MetricsHandle) -> Result<InspectorHandle, InstallError> {
        let core = metrics.core();
        let (stop, stopped) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = thread::Builder::new().name("lock-inspector".to_owned()).spawn(move || {
            let _ending = ending;
            // Built and dropped here: a runtime must not be dropped inside the caller's runtime.
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            if ready.send(Ok(())).is_ok() {
                runtime.block_on(self.run(&core, stopped));
            }
        });
        thread.map_err(InstallError::Thread)?;
        let ready = is_ready.recv().map_err(io::Error::other).and_then(|ready| ready);
        ready.map_err(InstallError::Thread)?;
        Ok(InspectorHandle { stop, ended })
    }

    /// Scans once, without an election, and exports the results. For programs that run now and then, and for tests.
    ///
    /// # Errors
    ///
    /// The error of the store. The earlier numbers stay.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn inspect_once(&self, metrics: &MetricsHandle) -> Result<(), LockError> {
        self.inspect(&metrics.core(), &mut Fleet::default()).await
    }

    async fn run(&self, core: &Core, mut stopped: oneshot::Receiver<Infallible>) {
        tokio::select! {
            _ = &mut stopped => {}
            () = self.take_part(core) => {}
        }
        core.publish(&self.shown_store(), None);
    }

    async fn take_part(&self, core: &Core) {
        let mut manager = None;
        let mut complained = false;
        loop {
            match self.stand(&mut manager).await {
                Ok(Some(term)) => {
                    complained = false;
                    tracing::info!(node = self.reader.node(), "this instance inspects the locks of the fleet");
                    self.serve(core, &term).await;
                    core.publish(&self.shown_store(), None);
                }
                Ok(None) => complained = false,
                Err(error) => {
                    // Another master of a cluster may serve the key by now.
                    manager = None;
                    // Logged once. The age of the last scan shows that the failure continues.
                    if !complained {
                        tracing::warn!(node = self.reader.node(), %error, "cannot take part in the inspector's election");
                    }
                    complained = true;
                }
            }
            // The jitter keeps instances that were started together from polling at the same time.
            pause(self.interval.min(TERM / 2).mul_f64(0.75 + jitter() / 2.0)).await;
        }
    }

    /// Tries to be elected.
    async fn stand(&self, manager: &mut Option<LockManager>) -> Result<Option<LockGuard>, LockError> {
        let locks = match manager {
            Some(locks) => locks,
            none => {
                // Each namespace has its own inspector.
                let prefix = self.reader.key_prefix();
                let key = LockKey::new(format!("{prefix}{INSPECTOR_KEY}"))?;
                let store = self.reader.store_of(&key).await?;
                let builder = LockManager::builder_of(store).store_name(Arc::clone(&self.store));
                none.insert(if prefix.is_empty() { builder } else { builder.key_prefix(prefix) }.build()?)
            }
        };
        let locks = &*locks;
        let elect = async |term: Duration| {
            let request = locks.lock(INSPECTOR_KEY).with_label(INSPECTOR_KEY);
            request.with_site("lock_metrics::FleetInspector").with_ttl(term).try_acquire().await
        };
        match elect(TERM).await {
            // The `max_ttl` of a quorum may be shorter.
            Err(error) if error.kind() == LockErrorKind::Misconfigured => elect(MIN_RENEWED_TTL).await,
            elected => elected,
        }
    }

    /// Scans until the term ends.
    async fn serve(&self, core: &Core, term: &LockGuard) {
        // Until the first scan ends, the metrics show that no scan has been made.
        core.publish(&self.shown_store(), Some(Fleet::default()));
        let scans = async {
            let mut known = Fleet::default();
            loop {
                if let Err(error) = self.inspect(core, &mut known).await {
                    tracing::warn!(node = self.reader.node(), %error, "cannot inspect the locks of the fleet");
                }
                pause(self.interval).await;
            }
        };
        tokio::select! {
            biased;
            reason = term.lost() => tracing::info!(%reason, "this instance no longer inspects the locks of the fleet"),
            () = scans => {}
        }
    }

    /// Returns the name of the store as metrics show it. It is the name that managers of the same namespace use.
    fn shown_store(&self) -> String {
        match self.reader.key_prefix() {
            "" => String::from(&*self.store),
            prefix => format!("{}#{prefix}", self.store),
        }
    }

    /// Scans once. `known` has the locks of earlier scans. If such a lock is gone, it is exported as 0.
    async fn inspect(&self, core: &Core, known: &mut Fleet) -> Result<(), LockError> {
        let clock = Clock::system();
        let begun = clock.now();
        let classes = self.classes.names().iter().map(|name| (name.clone(), FleetLock::default()));
        let before = known.locks.iter().map(|(name, lock)| (name.clone(), lock.emptied()));
        let (locks, overflow) = (classes.chain(before).collect(), known.overflow);
        let mut found = Fleet::default();
        (found.locks, found.overflow) = (locks, overflow);
        let mut scan = self.reader.scan(self.scan.clone());
        while let Some(batch) = scan.next().await? {
            let now = Moment::now();
            for entry in &batch {
                if let Some(lock) = self.counted(&mut found, &entry.key, entry.holder.lock()) {
                    lock.add(entry, now);
                    found.note_queue(&entry.key, entry.waiters);
                }
            }
        }
        for (key, record) in scan.jobs() {
            if let Some(lock) = self.counted(&mut found, key, record.info.lock.as_ref().map(LockLabel::as_str)) {
                let late = record.overdue().unwrap_or_default();
                lock.job_overdue = Some(lock.job_overdue.map_or(late, |latest| latest.max(late)));
            }
        }
        for member in scan.members().iter().flat_map(|all| &all.nodes) {
            if let Err(error) = &member.answer {
                tracing::warn!(node = &*member.node, %error, "a member of the quorum does not tell which locks it has");
            }
        }
        found.truncated = scan.is_truncated();
        found.scan_duration = clock.now().since(begun);
        found.last_success = Moment::now();
        known.clone_from(&found);
        core.publish(&self.shown_store(), Some(found));
        Ok(())
    }

    /// Returns the lock under which a key counts, by the name that its holder stored. Older holders and other libraries
    /// store none, so the name is guessed for them. `None` for the inspector's own lock.
    fn counted<'a>(&self, found: &'a mut Fleet, key: &LockKey, stored: Option<&str>) -> Option<&'a mut FleetLock> {
        // Templates and names do not contain the prefix of a namespace.
        let key = key.as_str().strip_prefix(self.reader.key_prefix()).unwrap_or(key.as_str());
        if key == INSPECTOR_KEY {
            return None;
        }
        let name = stored.unwrap_or_else(|| self.classes.names()[self.classes.of(key)].as_str());
        let room = found.locks.len() < MAX_FLEET_LOCKS || found.locks.contains_key(name);
        found.overflow += u64::from(!room);
        let name = if room { name } else { OTHER };
        Some(found.locks.entry(name.to_owned()).or_default())
    }
}

/// Hides the URL, which may contain a password.
impl fmt::Debug for FleetInspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetInspector")
            .field("node", &self.reader.node())
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "this runtime belongs to the inspector")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Returns a number between 0 and 1 that differs between instances and over time.
fn jitter() -> f64 {
    let mix =
        (Moment::now().as_nanos() ^ u64::from(std::process::id()).rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    f64::from(u32::try_from(mix >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
