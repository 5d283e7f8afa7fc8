//! One connection for each tokio runtime that asks.
//!
//! A socket belongs to the runtime whose reactor polls it, and dies with it. So each runtime has its
//! own: the application's, where first attempts and awaited releases are polled, and the keeper's.
//! An entry lives exactly as long as its connection: whatever ends the one removes the other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;

use crate::batch::coalesce::Coalescer;
use crate::batch::unsettled::Unsettled;
use crate::connection::connect::Target;
use crate::connection::greeting::{Greeting, Opened};
use crate::connection::link::Link;
use crate::on_drop::OnDrop;
use crate::sentinel::place::Place;
use crate::server::history::History;
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;

/// How often connections are replaced at most because the server is not a master.
const RETIRE_EVERY: Duration = Duration::from_secs(1);

/// The connections of one store.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Where the server is found.
    pub(crate) place: Place,
    pub(crate) history: Arc<History>,
    slots: Arc<Slots>,
    pub(crate) unsettled: Arc<Unsettled>,
    /// Whether somebody has asked for a connection since the last look.
    used: AtomicBool,
}

/// The result that a runtime's callers wait for: nothing yet, or how connecting ended.
type Outcome = Option<Result<Arc<Coalescer>>>;

#[derive(Debug)]
struct Slots {
    /// Never locked while a link is dropped: the end of a link locks it too.
    by_runtime: Mutex<HashMap<Id, Slot, RandomState>>,
    generations: AtomicU64,
    /// When the server was last found not to be a master: older connections are no longer used.
    retired: watch::Sender<Timestamp>,
}

/// A connection of one runtime, open or being opened.
#[derive(Debug)]
struct Slot {
    generation: u64,
    outcome: watch::Receiver<Outcome>,
}

impl Pool {
    pub(crate) fn new(place: Place) -> Self {
        let retired = watch::Sender::new(Timestamp::from_nanos(0));
        let slots = Slots { by_runtime: Mutex::default(), generations: AtomicU64::new(0), retired };
        Self {
            place,
            history: Arc::default(),
            slots: Arc::new(slots),
            unsettled: Arc::default(),
            used: AtomicBool::new(false),
        }
    }

    /// Returns how servers are reached: credentials, TLS and database.
    pub(crate) fn target(&self) -> &Target {
        self.place.target()
    }

    /// Returns a number for one more connection of the store.
    pub(crate) fn number(&self) -> u64 {
        self.slots.generations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the connection of the current runtime, if it has one that is worth using.
    pub(crate) fn open_connection(&self, now: Timestamp) -> Option<Arc<Coalescer>> {
        self.slots.open(Handle::try_current().ok()?.id(), now)
    }

    /// Returns the connection of the current runtime, opening it if there is none.
    ///
    /// Callers that arrive while it is being opened share the result. If the future is dropped, the
    /// attempt continues for the next caller.
    pub(crate) async fn connection(&self) -> Result<Arc<Coalescer>> {
        self.used.store(true, Ordering::Relaxed);
        let runtime = Handle::try_current().map_err(|_| {
            LockError::misconfigured(
                "the Redis store was polled outside of a tokio runtime; call it from a task of one built with enable_all()",
            )
        })?;
        if let Some(open) = self.slots.open(runtime.id(), Clock::system().now()) {
            return Ok(open);
        }
        for may_repeat in [true, false] {
            let mut outcome = self.outcome(&runtime);
            let opened = match outcome.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(known)) => known.clone(),
                Ok(None) | Err(_) => Err(LockError::not_executed(format!(
                    "the tokio runtime that was connecting to {} is shutting down; ask from one that keeps running",
                    self.place.name(),
                ))),
            };
            // The server was found to be no master while it was opened: another one leads elsewhere.
            let is_retired = |open: &Arc<Coalescer>| !self.slots.serves(&open.link, Clock::system().now());
            if !may_repeat || !opened.as_ref().is_ok_and(is_retired) {
                return opened;
            }
        }
        Err(LockError::not_executed("no connection is worth using"))
    }

    fn outcome(&self, runtime: &Handle) -> watch::Receiver<Outcome> {
        // Dropped after the lock.
        let mut _retired = None;
        let (generation, publish, outcome) = {
            let mut slots = self.slots.by_runtime.lock();
            let entry = slots.entry(runtime.id());
            if let Entry::Occupied(found) = &entry
                && found.get().is_usable(&self.slots)
            {
                return found.get().outcome.clone();
            }
            let generation = self.number();
            let (publish, outcome) = watch::channel(None);
            let slot = Slot { generation, outcome: outcome.clone() };
            match entry {
                Entry::Occupied(mut found) => _retired = Some(found.insert(slot)),
                Entry::Vacant(empty) => {
                    empty.insert(slot);
                }
            }
            (generation, publish, outcome)
        };
        // Also dropped after the lock: a runtime that is shutting down drops a task at once.
        self.spawn_connect(runtime, generation, publish);
        outcome
    }

    fn spawn_connect(&self, runtime: &Handle, generation: u64, publish: watch::Sender<Outcome>) {
        let (alive, gone) = watch::channel(());
        let (slots, id) = (Arc::downgrade(&self.slots), runtime.id());
        // Proves that the connection exists or is being opened. Its driver owns it; when it is dropped, for whatever reason,
        // the slot is free for a new connection.
        let presence = OnDrop(move || {
            let _ended_with_it = &alive;
            if let Some(slots) = slots.upgrade() {
                slots.forget(id, generation);
            }
        });
        let (place, unsettled) = (self.place.clone(), Arc::clone(&self.unsettled));
        let history = Arc::clone(&self.history);
        // A runtime without I/O or timers panics at the first socket: in a task of its own, so that
        // the panic becomes an answer and does not end the caller.
        let opened_at = Clock::system().now();
        let opening = runtime.spawn(async move { place.open(presence).await });
        let node = self.place.name().to_owned();
        runtime.spawn(async move {
            let opened = match opening.await {
                Ok(Ok(Opened { connection, client, history: found, moves, more })) => {
                    let Greeting { time, cluster, refuses_release } = more;
                    history.observe(found.as_ref());
                    let link = Link::new(connection, generation, opened_at, time, gone, client);
                    let link = link.to(found, moves);
                    link.note_release(refuses_release);
                    if cluster {
                        link.note_cluster();
                    }
                    Ok(Arc::new(Coalescer::new(link, unsettled)))
                }
                Ok(Err(error)) => Err(error),
                Err(ended) if ended.is_panic() => Err(LockError::misconfigured(format!(
                    "connecting to {node} panicked, as it does on a tokio runtime without I/O or time; \
                     build the runtime with enable_all()",
                ))),
                Err(_) => return,
            };
            // This fails if the store was dropped meanwhile, when nobody waits for the result.
            let _ = publish.send(Some(opened));
        });
    }

    /// Replaces every current connection, because the server at the other end is no longer a master. If a
    /// virtual address has moved, new connections lead to the new master.
    pub(crate) fn retire(&self) {
        let now = Clock::system().now();
        // Limits the rate, so that a server that stays a replica does not get a new connection for
        // each refusal.
        self.slots.retired.send_if_modified(|retired| {
            let due = now.since(*retired) >= RETIRE_EVERY;
            if due {
                *retired = now;
            }
            due
        });
    }

    /// Closes every connection that is not in use. The next caller opens another.
    pub(crate) fn close(&self) {
        let _dropped_after_the_lock = std::mem::take(&mut *self.slots.by_runtime.lock());
    }

    /// Closes every connection if nobody has asked for one since the last call.
    pub(crate) fn close_if_idle(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            self.close();
        }
    }

    /// Returns a receiver of the moment at which connections were last retired.
    pub(crate) fn retirements(&self) -> watch::Receiver<Timestamp> {
        self.slots.retired.subscribe()
    }

    /// Returns every open connection.
    pub(crate) fn open_connections(&self) -> Vec<Arc<Coalescer>> {
        let open = |slot: &Slot| slot.outcome.borrow().as_ref()?.as_ref().ok().cloned();
        self.slots.by_runtime.lock().values().filter_map(open).collect()
    }

    /// Returns how many runtimes have a connection, open or being opened.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn connections(&self) -> usize {
        self.slots.by_runtime.lock().len()
    }
}

impl Slots {
    /// Returns the connection of a runtime, if it is open and should be used.
    fn open(&self, runtime: Id, now: Timestamp) -> Option<Arc<Coalescer>> {
        match self.by_runtime.lock().get(&runtime)?.outcome.borrow().as_ref()? {
            Ok(open) if self.serves(&open.link, now) => Some(Arc::clone(open)),
            _ => None,
        }
    }

    /// Returns whether a connection is worth using.
    fn serves(&self, link: &Link, now: Timestamp) -> bool {
        !link.is_silent(now) && !link.has_moved() && link.opened_at >= *self.retired.borrow()
    }

    fn forget(&self, runtime: Id, generation: u64) {
        let _dropped_after_the_lock = match self.by_runtime.lock().entry(runtime) {
            Entry::Occupied(found) if found.get().generation == generation => Some(found.remove()),
            _ => None,
        };
    }
}

impl Slot {
    /// Returns whether the next caller should use this slot rather than open a new connection.
    fn is_usable(&self, slots: &Slots) -> bool {
        match self.outcome.borrow().as_ref() {
            Some(Ok(open)) => slots.serves(&open.link, Clock::system().now()),
            Some(Err(_)) => false,
            // The connecting task ends without a result when its runtime shuts down.
            None => self.outcome.has_changed().is_ok(),
        }
    }
}

/// The renewals of one server.
#[derive(Debug)]
pub(crate) struct Renewals {
    /// The connections that carry renewals and nothing else: one for each keeper, open while leases are renewed over it.
    pub(crate) pool: Pool,
    /// The runtimes of the keepers.
    keepers: Mutex<Vec<Id>>,
}

impl Renewals {
    pub(crate) fn new(place: Place) -> Self {
        Self { pool: Pool::new(place), keepers: Mutex::default() }
    }

    /// Says that a keeper runs on this runtime, until the result is dropped.
    pub(crate) fn keep_here(&self) -> OnDrop<impl FnMut()> {
        let runtime = Handle::current().id();
        self.keepers.lock().push(runtime);
        OnDrop(move || {
            let mut keepers = self.keepers.lock();
            if let Some(at) = keepers.iter().position(|known| *known == runtime) {
                keepers.swap_remove(at);
            }
        })
    }

    pub(crate) fn are_kept_here(&self) -> bool {
        Handle::try_current().is_ok_and(|runtime| self.keepers.lock().contains(&runtime.id()))
    }
}
